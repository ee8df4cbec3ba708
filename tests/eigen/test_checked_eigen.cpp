// What checked_eigen.hpp declares, and that it sees what it is to see.
#define HEED_TEST_COUNT_ALLOCATIONS
#include "eigen/checked_eigen.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>

namespace test {

namespace {
std::atomic<long> failed = 0;
std::atomic<bool> expected = false;
}  // namespace

void eigen_assertion_failed(const char* condition) noexcept {
  ++failed;
  if (!expected) FAIL_CHECK("Eigen's assertion failed: ", condition);
}
long eigen_assertions_failed() noexcept {
  return failed;
}

}  // namespace test

TEST_CASE("an Eigen matrix's memory is counted as an allocation") {
  Eigen::MatrixXf a = Eigen::MatrixXf::Random(200, 200);
  const Eigen::MatrixXf b = Eigen::MatrixXf::Random(200, 200);
  CHECK(test::eigen_allocations_in([&] { a.array() += 1; }) == 0);
  test::expected = true;
  CHECK(test::eigen_allocations_in([&] { const Eigen::MatrixXf copy = a; }) >= 1);  // Eigen 5 counts the release, too
  CHECK(test::eigen_allocations_in([&] { a.noalias() = b * b; }) >= 1);  // larger than the blocks of EigenMap
  std::unique_ptr<int> kept;
  CHECK(test::eigen_allocations_in([&] { kept = std::make_unique<int>(1); }) == 1);
  test::expected = false;
}
