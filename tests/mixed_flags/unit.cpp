// Compiled several times, each with other flags and another name for its function in UNIT.
#include "unit.hpp"

#include <csetjmp>
#include <cstdio>
#include <exception>

#include "heed/ops/linear.hpp"

namespace {

char text[512];

float product(heed::Index in_features) {
  const float weight[] = {1, 2};
  const float x[] = {10, 1};
  float y = 0;
  heed::ops::linear(heed::Simd(), heed::View<const float, 2>(x, {heed::Index{1}, in_features}),
                    heed::View<const float, 2>(weight, {1, 2}), {}, heed::View<float, 2>(&y, {1, 1}));
  return y;
}

#if !HEED_EXCEPTIONS
std::jmp_buf resume;

void report(const heed::Problem& problem) {
  std::snprintf(text, sizeof text, "%s", problem.text());
  std::longjmp(resume, 1);
}
#endif

}  // namespace

Result UNIT() {
#if HEED_EXCEPTIONS
  try {
    product(1);
  } catch (const std::exception& error) {
    std::snprintf(text, sizeof text, "%s", error.what());
  }
#else
  const heed::ErrorHandler before = heed::set_error_handler(report);
  if (setjmp(resume) == 0) product(1);
  heed::set_error_handler(before);
#endif
  return {product(2), text};
}
