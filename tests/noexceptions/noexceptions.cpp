// Compiled with -fno-exceptions -fno-rtti: an error's text must reach the handler, and the program must go on.
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "heed/ops/linear.hpp"

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
  const float weight[] = {1, 2};
  const float x[] = {10, 1};
  float y = 0;
  const auto linear = [&](heed::Index in_features) {
    heed::ops::linear(heed::Cpu(), heed::View<const float, 2>(x, {heed::Index{1}, in_features}),
                      heed::View<const float, 2>(weight, {1, 2}), {}, heed::View<float, 2>(&y, {1, 1}));
  };

  bool good = reports("heed: a text", [] { heed::raise(heed::Problem(heed::ErrorKind::shape, "heed: a text")); });
  good = reports("heed: linear: x: expected [*, 2] (axis 0, in features), got [1, 1]", [&] { linear(1); }) && good;

  // A call that is right reports nothing, after an error too.
  reported[0] = '\0';
  linear(2);
  good = y == 12 && reported[0] == '\0' && good;
  return good ? 0 : 1;
}
