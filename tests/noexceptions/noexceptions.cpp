// Compiled with -fno-exceptions -fno-rtti: an error's text must reach the handler, and the program must go on.
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "heed/error.hpp"

namespace {

std::jmp_buf resume;
char reported[512];

void report(const heed::Problem& problem) {
  std::snprintf(reported, sizeof reported, "%s", problem.text());
  std::longjmp(resume, 1);  // a handler must not return
}

// Runs what must fail; true if the handler was given the text.
template <class F>
bool reports(const char* text, F&& failing) {
  reported[0] = '\0';
  if (setjmp(resume) == 0) {
    failing();
    std::fprintf(stderr, "nothing was reported, expected: %s\n", text);
    return false;
  }
  if (std::strcmp(reported, text) == 0) return true;
  std::fprintf(stderr, "reported: %s\nexpected: %s\n", reported, text);
  return false;
}

}  // namespace

int main() {
  heed::set_error_handler(report);
  bool good = reports("heed: a text", [] { heed::raise(heed::Problem(heed::ErrorKind::shape, "heed: a text")); });

  heed::raise_if(heed::Problem());  // no problem, no report
  return good ? 0 : 1;
}
