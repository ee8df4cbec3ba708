// Replaces operator new for the layers' tests, and shows that it counts.
#define HEED_TEST_COUNT_ALLOCATIONS
#include "support/allocation_counter.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <thread>
#include <vector>

#include "heed/core/tensor.hpp"
#include "heed/core/workspace.hpp"

TEST_CASE("allocation counter: plain, array and aligned allocations, of every thread") {
  std::unique_ptr<int> kept;  // else the compiler may leave out new and delete
  CHECK(test::allocations_in([] {}) == 0);
  CHECK(test::allocations_in([&] { kept = std::make_unique<int>(1); }) == 1);
  std::vector<float> list;
  CHECK(test::allocations_in([&] { list.resize(100); }) == 1);
  CHECK(test::allocations_in([] { heed::Tensor<float, 2>({2, 3}); }) == 1);
  CHECK(test::allocations_in([] { heed::Workspace(100); }) == 1);
  CHECK(test::allocations_in([&] { std::thread([&] { kept = std::make_unique<int>(1); }).join(); }) >= 2);
}
