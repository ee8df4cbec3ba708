// HostRuntime: a device for tests on machines that have none: kernels run under the host executor.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heed/cuda/device.hpp"
#include "heed/cuda/host_executor.hpp"

namespace heed::inline HEED_ABI {

// As asynchronous as a device can be: nothing that is asked for happens before sync(), so what is read too early is seen
// to be old. Its memory cannot be touched outside kernels and copies (a program that does so ends there); it begins as
// NaN, ends at a page that cannot be touched at all, and what is written behind its end is found. Between begin_capture()
// and end_capture() it refuses what a stream that is being captured refuses: to allocate, to free and to wait.
//
//   heed::HostRuntime runtime;                         copies are the same device
//   const heed::Device<heed::HostRuntime> device(runtime);
//
// One thread at a time.
class HostRuntime {
  struct State;

 public:
  // What was asked for, but for what is being captured.
  struct Counts {
    long launches = 0;
    long allocations = 0;
    HostExecutorCounts executor = {};
  };
  // Operations that were captured.
  class Graph {
   private:
    friend class HostRuntime;
    struct Operation {
      std::string what;
      std::function<void()> run;
    };
    std::vector<Operation> operations_;

   public:
    std::size_t size() const noexcept { return operations_.size(); }
  };

  explicit HostRuntime(const HostExecutorOptions& options = {}) : state_(std::make_shared<State>()) {
    state_->options = options;
  }

  // For what has no memory yet.
  static HostRuntime none() noexcept { return HostRuntime(std::shared_ptr<State>()); }

  static constexpr const char* name() noexcept { return "device_host"; }
  const Counts& counts() const noexcept { return state_->counts; }

  void* allocate(std::size_t bytes) const {
    State& state = *state_;
    if (state.capturing) fail("allocating " + std::to_string(bytes) + " bytes", "a stream is being captured");
    const std::size_t length = in_pages(bytes) + page();
    void* const base = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) fail("allocating " + std::to_string(bytes) + " bytes", "no memory");
    std::memset(base, 0xff, in_pages(bytes));
    ::mprotect(base, length, PROT_NONE);
    const Allocation allocation{static_cast<unsigned char*>(base), bytes};
    state.allocations[allocation.begin()] = allocation;
    ++state.counts.allocations;
    return allocation.begin();
  }
  void release(void* memory) const noexcept {
    State& state = *state_;
    if (state.capturing) state.capture_failed = true;
    state.queue.push_back({"freeing", [&state, memory] { state.unmap(memory); }});
  }
  void copy(void* to, const void* from, std::size_t bytes) const {
    put("copying " + std::to_string(bytes) + " bytes", [=] { std::memcpy(to, from, bytes); });
  }
  void zero(void* memory, std::size_t bytes) const {
    put("zeroing " + std::to_string(bytes) + " bytes", [=] { std::memset(memory, 0, bytes); });
  }

  template <class Kernel>
  void launch(const Kernel& kernel, Index blocks) const {
    const std::string what = std::string("running ") + Kernel::name + " in " + std::to_string(blocks) + " blocks";
    if (blocks > 0x7fffffff) fail(what, "too many blocks");
    if (kernel.shared_bytes() > most_shared_bytes) fail(what, "too much shared memory");
    static_assert(std::is_trivially_copyable_v<Kernel>, "a kernel is copied to the device byte by byte");
    static_assert(sizeof(Kernel) <= 4096, "a kernel's arguments must fit into 4 KB");
    State* const state = state_.get();
    if (!state->capturing) ++state->counts.launches;
    put(what, [state, kernel, blocks] { impl::run_on_host(kernel, blocks, state->options, state->counts.executor); });
  }

  void sync() const {
    if (state_->capturing) fail("waiting", "a stream is being captured");
    state_->run();
  }

  void begin_capture() const {
    state_->capturing = true;
    state_->capture_failed = false;
    state_->captured = {};
  }
  Graph end_capture() const {
    state_->capturing = false;
    if (state_->capture_failed) fail("capturing", "memory was freed");
    return std::move(state_->captured);
  }
  // Everything in the graph once more.
  void replay(const Graph& graph) const {
    for (const Graph::Operation& operation : graph.operations_) put(operation.what, operation.run);
  }

 private:
  static constexpr int most_shared_bytes = 227 * 1024;  // of sm_90; sm_80 has 163 KB

  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  static std::size_t in_pages(std::size_t bytes) { return (bytes + page() - 1) / page() * page(); }

  // Ends, but for alignment to 16 bytes, at the page behind it.
  struct Allocation {
    unsigned char* base = nullptr;
    std::size_t bytes = 0;

    unsigned char* begin() const { return base + (in_pages(bytes) - bytes) / 16 * 16; }
    bool intact() const {
      const unsigned char* const end = base + in_pages(bytes);
      for (const unsigned char* at = base; at < end; ++at) {
        if (at == begin()) at += bytes;
        if (at < end && *at != 0xff) return false;
      }
      return true;
    }
  };

  struct State {
    HostExecutorOptions options;
    Counts counts;
    std::vector<Graph::Operation> queue;
    Graph captured;
    std::map<void*, Allocation> allocations;
    bool capturing = false;
    bool capture_failed = false;

    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
      for (const auto& [begin, allocation] : allocations)
        ::munmap(allocation.base, in_pages(allocation.bytes) + page());
    }
    void unmap(void* memory) {
      const Allocation allocation = allocations[memory];
      allocations.erase(memory);
      ::munmap(allocation.base, in_pages(allocation.bytes) + page());
    }
    void protect(int access) const {
      for (const auto& [begin, allocation] : allocations)
        ::mprotect(allocation.base, in_pages(allocation.bytes), access);
    }
    void run() {
      std::vector<Graph::Operation> operations;
      operations.swap(queue);
      for (const Graph::Operation& operation : operations) {
        std::string error;
        protect(PROT_READ | PROT_WRITE);
        try {
          operation.run();
        } catch (const std::exception& thrown) {
          error = thrown.what();
        }
        for (const auto& [begin, allocation] : allocations) {
          if (error.empty() && !allocation.intact()) error = "something was written beside a tensor";
        }
        protect(PROT_NONE);
        if (!error.empty()) fail(operation.what, error);
      }
    }
  };

  [[noreturn]] static void fail(const std::string& what, const std::string& why) {
    raise(Problem(ErrorKind::system, "heed: HostRuntime: ").append(what.c_str()).append(": ").append(why.c_str()));
  }
  void put(const std::string& what, std::function<void()> run) const {
    auto& operations = state_->capturing ? state_->captured.operations_ : state_->queue;
    operations.push_back({what, std::move(run)});
  }

  explicit HostRuntime(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace heed::inline HEED_ABI
