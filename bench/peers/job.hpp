// What bench/peers hands to Python: work that was made once, with all the memory it needs, and is run by one call without
// arguments, so that the call costs next to nothing.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>

#define HEED_PEERS_EXPORT extern "C" __attribute__((visibility("default")))

namespace peers {

class Job {
 public:
  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  virtual ~Job() = default;

  virtual void run() = 0;
  // What it has to keep to go on: caches, states, workspaces.
  virtual std::int64_t bytes() const { return 0; }
};

// make()'s result, or null and a line on stderr: no exception may reach Python.
template <class F>
auto guarded(F&& make) noexcept -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench/peers: %s\n", error.what());
    return nullptr;
  }
}

}  // namespace peers
