// A test in every order in which the host executor can run the warps of a kernel.
#pragma once

#include <doctest/doctest.h>

#include "cuda/test_device.hpp"

namespace test {

// Calls check(device) for each order in which the warps of a kernel can run. A real device has one of its own.
template <class F>
void for_each_warp_order(F&& check) {
#if defined(__CUDACC__)
  check(make_device());
#else
  const struct {
    const char* name;
    heed::WarpOrder order;
  } orders[] = {{"up", heed::WarpOrder::up}, {"down", heed::WarpOrder::down}, {"shuffled", heed::WarpOrder::shuffled}};
  for (const auto& each : orders) {
    INFO("warps run ", each.name);
    check(TestDevice(heed::HostRuntime({.order = each.order, .seed = 7})));
  }
#endif
}

}  // namespace test
