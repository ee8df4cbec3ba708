// The host executor: runs kernels on the CPU, block after block, each thread a fiber. For tests: it is slow, and it
// finds what goes unnoticed on a device on a good day.
//
// Warps run greedily, each as far as it can before the next one starts, in three orders: a barrier that is missing shows
// as a wrong result in one of them. Copies land only when they are waited for; shared memory begins as NaN and is exactly
// as large as asked for. Threads that wait for each other at different lines, or have left, are an error (stricter than
// the hardware). Under the address sanitizer what reads beyond shared memory is found, under the thread sanitizer every
// pair of accesses that nothing orders.
#pragma once

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "heed/cuda/fiber.hpp"
#include "heed/cuda/host_context.hpp"

namespace heed {

// In which order warps run.
enum class WarpOrder { up, down, shuffled };

struct HostExecutorOptions {
  WarpOrder order = WarpOrder::up;
  unsigned seed = 1;  // of shuffled
};

// What was run.
struct HostExecutorCounts {
  long blocks = 0;
  long switches = 0;  // of threads
  long barriers = 0;  // of blocks
  long warp_operations = 0;
  long bank_conflicts = 0;  // more accesses of shared memory than load_matrices() would need
};

}  // namespace heed

namespace heed::inline HEED_ABI::impl {

class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class HostBlock {
 public:
  HostBlock(int threads, std::size_t shared_bytes, const HostExecutorOptions& options)
      : threads_(threads), shared_limit_(shared_bytes), options_(options), random_(options.seed * 2654435761U + 1) {
    if (threads < 1 || threads > 1024) throw KernelError("a block of " + std::to_string(threads) + " threads");
    state_memory_ = std::make_unique<State[]>(static_cast<std::size_t>(threads));
    warp_memory_ = std::make_unique<Warp[]>(static_cast<std::size_t>(warp_count()));
    states_ = state_memory_.get();
    warps_ = warp_memory_.get();
    for (int t = 0; t < threads; ++t) states_[t].fiber = std::make_unique<Fiber>(stack_bytes);
  }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  ~HostBlock() { free_shared(); }

  template <class Kernel>
  HEED_NOT_TSAN void run(const Kernel& kernel, Index block, Index blocks, HostExecutorCounts& counts) {
    free_shared();
    counts_ = &counts;
    error_.clear();
    for (int t = 0; t < threads_; ++t) begin(kernel, t, block, blocks);
    int live = threads_;
    while (live > 0) {
      bool progress = false;
      for (int i = 0; i < warp_count(); ++i)
        warps_[i].place = options_.order == WarpOrder::down ? warp_count() - 1 - i : i;
      if (options_.order == WarpOrder::shuffled) shuffle_warps();
      for (int i = 0; i < warp_count(); ++i) {
        bool again = true;
        while (again) {
          const bool ran = run_warp(warps_[i].place, live);
          if (!error_.empty()) throw KernelError("block " + std::to_string(block) + ": " + error_);
          again = release_warp(warps_[i].place);
          progress = progress || ran || again;
        }
      }
      const bool released = release_block();
      progress = progress || released;
      if (live > 0 && !progress) throw KernelError("block " + std::to_string(block) + ": " + diagnosis());
    }
    ++counts.blocks;
  }
  // What all blocks of a grid are ordered against, for the thread sanitizer.
  void set_grid(void* grid) noexcept { grid_ = grid; }

 private:
  friend class heed::HostContext;
  using Slot = HostContext::Slot;
  enum class Wait { none, block, warp };

  struct State {
    std::unique_ptr<Fiber> fiber;
    HostContext context;
    HostBlock* block = nullptr;
    const void* kernel = nullptr;
    Wait wait = Wait::none;
    int line = 0;
    int phase[2] = {0, 0};
  };
  struct Warp {
    Slot slots[2][32];
    char tag[2][8];
    int place = 0;
  };
  struct Shared {
    void* data = nullptr;
    std::size_t bytes = 0;
  };

  int warp_count() const noexcept { return (threads_ + 31) / 32; }
  int warp_end(int warp) const noexcept { return warp * 32 + 32 < threads_ ? warp * 32 + 32 : threads_; }

  template <class Kernel>
  HEED_NOT_TSAN void begin(const Kernel& kernel, int t, Index block, Index blocks) {
    State& state = states_[t];
    state.context = HostContext();
    state.context.host_block_ = this;
    state.context.thread_ = t;
    state.context.block_index_ = block;
    state.context.blocks_ = blocks;
    state.block = this;
    state.kernel = &kernel;
    state.wait = Wait::none;
    state.phase[0] = state.phase[1] = 0;
    state.fiber->reset(
        [](void* argument) {
          auto* own = static_cast<State*>(argument);
          try {
            (*static_cast<const Kernel*>(own->kernel))(own->context);
          } catch (const std::exception& error) {
            own->block->error_ = error.what();
          }
#if HEED_FIBER_TSAN
          __tsan_release(own->block->grid_);
#endif
        },
        &state);
  }

  HEED_NOT_TSAN void wait(int t, Wait what, int line) {
    State& state = states_[t];
    state.wait = what;
    state.line = line;
#if HEED_FIBER_TSAN
    // Two tags in turn: a late thread that leaves one barrier must not acquire what an early one released at the next.
    const int turn = state.phase[what == Wait::warp] ^= 1;
    void* tag =
        what == Wait::block ? static_cast<void*>(&block_tag_[turn]) : static_cast<void*>(&warps_[t / 32].tag[turn]);
    __tsan_release(tag);
#endif
    state.fiber->yield();
#if HEED_FIBER_TSAN
    __tsan_acquire(tag);
#endif
  }

  HEED_NOT_TSAN bool run_warp(int warp, int& live) {
    const int first = warp * 32;
    const int count = warp_end(warp) - first;
    int lanes[32];
    for (int i = 0; i < count; ++i) lanes[i] = options_.order == WarpOrder::down ? count - 1 - i : i;
    for (int i = count - 1; i > 0 && options_.order == WarpOrder::shuffled; --i)
      std::swap(lanes[i], lanes[random(i + 1)]);
    bool any = false;
    for (int i = 0; i < count; ++i) {
      State& state = states_[first + lanes[i]];
      if (state.wait != Wait::none || state.fiber->done()) continue;
      any = true;
      ++counts_->switches;
      state.fiber->resume();
      if (state.fiber->done()) --live;
      if (!error_.empty()) break;
    }
    return any;
  }

  // Lets threads go on if all of them wait for the same thing at the same line.
  HEED_NOT_TSAN bool release(int first, int end, Wait what) {
    for (int t = first; t < end; ++t) {
      if (states_[t].fiber->done() || states_[t].wait != what || states_[t].line != states_[first].line) return false;
    }
    for (int t = first; t < end; ++t) states_[t].wait = Wait::none;
    return true;
  }
  HEED_NOT_TSAN bool release_warp(int warp) {
    const bool released = release(warp * 32, warp_end(warp), Wait::warp);
    counts_->warp_operations += released ? 1 : 0;
    return released;
  }
  HEED_NOT_TSAN bool release_block() {
    const bool released = release(0, threads_, Wait::block);
    counts_->barriers += released ? 1 : 0;
    return released;
  }

  std::string diagnosis() const {
    std::string text = "threads are stuck:";
    int exited = 0;
    int shown = 0;
    for (int t = 0; t < threads_; ++t) {
      const State& state = states_[t];
      if (state.fiber->done()) {
        ++exited;
        continue;
      }
      const State& before = states_[t > 0 ? t - 1 : 0];
      const bool same = t > 0 && !before.fiber->done() && before.wait == state.wait && before.line == state.line;
      if (same || shown++ >= 6) continue;
      text += " thread " + std::to_string(t) + (state.wait == Wait::block ? " at sync()" : " at a warp's operation");
      text += ", line " + std::to_string(state.line) + ";";
    }
    return text + " " + std::to_string(exited) + " have left";
  }

  HEED_NOT_TSAN void* shared_array(int number, std::size_t bytes) {
    if (number >= most_arrays) throw KernelError("too many shared arrays");
    if (number < arrays_) {
      if (arrays_at_[number].bytes != bytes) {
        throw KernelError("threads disagree on the size of shared array " + std::to_string(number));
      }
    } else {
      shared_used_ = (shared_used_ + 127) / 128 * 128 + bytes;
      if (shared_used_ > shared_limit_) {
        throw KernelError("it takes " + std::to_string(shared_used_) +
                          " bytes of shared memory, and was launched with " + std::to_string(shared_limit_));
      }
      void* data = nullptr;
      if (posix_memalign(&data, 128, bytes > 0 ? bytes : 1) != 0) throw std::bad_alloc();
      std::memset(data, 0xff, bytes);  // NaN in every float format
      arrays_at_[number] = {data, bytes};
      arrays_ = number + 1;
#if HEED_FIBER_TSAN
      __tsan_release(&arrays_at_);
#endif
    }
#if HEED_FIBER_TSAN
    __tsan_acquire(&arrays_at_);
#endif
    return arrays_at_[number].data;
  }
  HEED_NOT_TSAN void free_shared() noexcept {
    for (int i = 0; i < arrays_; ++i) std::free(arrays_at_[i].data);
    arrays_ = 0;
    shared_used_ = 0;
  }

  // Eight 16-byte rows of a matrix should fall into eight different groups of four banks.
  HEED_NOT_TSAN void count_conflicts(const Slot* slots) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      int hits[8] = {};
      int worst = 0;
      for (int i = 0; i < 8; ++i) {
        std::uintptr_t address = 0;
        std::memcpy(&address, slots[matrix * 8 + i].bytes, sizeof address);
        const int group = static_cast<int>((address >> 4) & 7U);
        worst = ++hits[group] > worst ? hits[group] : worst;
      }
      counts_->bank_conflicts += worst - 1;
    }
  }

  HEED_NOT_TSAN int random(int count) {
    random_ = random_ * 1664525U + 1013904223U;
    return static_cast<int>((random_ >> 8) % static_cast<unsigned>(count));
  }
  HEED_NOT_TSAN void shuffle_warps() {
    for (int i = warp_count() - 1; i > 0; --i) std::swap(warps_[i].place, warps_[random(i + 1)].place);
  }

  static constexpr std::size_t stack_bytes = 128 * 1024;
  static constexpr int most_arrays = 16;

  Shared arrays_at_[most_arrays];
  int arrays_ = 0;
  int threads_;
  std::size_t shared_limit_;
  std::size_t shared_used_ = 0;
  HostExecutorOptions options_;
  unsigned random_;
  std::unique_ptr<State[]> state_memory_;
  std::unique_ptr<Warp[]> warp_memory_;
  State* states_ = nullptr;  // [threads]
  Warp* warps_ = nullptr;    // [warps]
  std::string error_;
  HostExecutorCounts* counts_ = nullptr;
  void* grid_ = nullptr;
  [[maybe_unused]] char block_tag_[2][8] = {};
};

// All blocks of a launch.
template <class Kernel>
void run_on_host(const Kernel& kernel, Index blocks, const HostExecutorOptions& options, HostExecutorCounts& counts) {
  const auto shared_bytes = static_cast<std::size_t>(kernel.shared_bytes());
#if HEED_FIBER_TSAN
  // Nothing is used again by another block, so that races between blocks show too.
  const auto all = std::make_unique<std::unique_ptr<HostBlock>[]>(static_cast<std::size_t>(blocks));
  for (Index block = 0; block < blocks; ++block) {
    all[static_cast<std::size_t>(block)] = std::make_unique<HostBlock>(Kernel::threads, shared_bytes, options);
    all[static_cast<std::size_t>(block)]->set_grid(&counts);
    all[static_cast<std::size_t>(block)]->run(kernel, block, blocks, counts);
  }
  __tsan_acquire(&counts);
#else
  HostBlock one(Kernel::threads, shared_bytes, options);
  for (Index block = 0; block < blocks; ++block) one.run(kernel, block, blocks, counts);
#endif
}

}  // namespace heed::inline HEED_ABI::impl

namespace heed::inline HEED_ABI {

inline void HostContext::sync(int line) {
  host_block_->wait(thread_, impl::HostBlock::Wait::block, line);
}
inline void HostContext::sync_warp(int line) {
  host_block_->wait(thread_, impl::HostBlock::Wait::warp, line);
}
template <class T>
HEED_NOT_TSAN const HostContext::Slot* HostContext::publish(const T& value, int line) {
  static_assert(sizeof(T) <= sizeof(Slot));
  parity_ ^= 1;
  Slot* slots = host_block_->warps_[warp()].slots[parity_];
  std::memcpy(slots[lane()].bytes, &value, sizeof(T));
  host_block_->wait(thread_, impl::HostBlock::Wait::warp, line);
  return slots;
}
template <class T>
HEED_NOT_TSAN T HostContext::from(const Slot* slots, int source) const {
  if (source < 0 || source > 31 || warp() * 32 + source >= host_block_->threads_) {
    throw impl::KernelError("a shuffle from a lane that is not there");
  }
  T value;
  std::memcpy(&value, slots[source].bytes, sizeof(T));
  return value;
}
HEED_NOT_TSAN inline void* HostContext::shared_bytes(std::size_t bytes) {
  return host_block_->shared_array(shared_arrays_++, bytes);
}

HEED_NOT_TSAN inline void HostContext::copy_async(void* to, const void* from, bool present) {
  const auto addresses = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (addresses % 16 != 0) throw impl::KernelError("copy_async() of what is not aligned to 16 bytes");
  if (groups_.empty()) groups_.emplace_back();
  groups_.back().copies.push_back({to, from, present});
}
inline void HostContext::wait_for_groups(std::size_t newest) {
  while (groups_.size() > newest + 1) {
    for (const Copy& copy : groups_.front().copies) {
      if (copy.present) {
        std::memcpy(copy.to, copy.from, 16);
      } else {
        std::memset(copy.to, 0, 16);
      }
    }
    groups_.erase(groups_.begin());
  }
}

inline void HostContext::load_matrices(std::uint32_t (&matrices)[4], const void* row, bool transposed, int line) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) throw impl::KernelError("load_matrices() of an unaligned row");
  const auto* slots = publish(static_cast<const std::uint16_t*>(row), line);
  const int own = lane();
  if (own == 0) host_block_->count_conflicts(slots);
  for (int m = 0; m < 4; ++m) {
    std::uint32_t halves[2];
    for (int i = 0; i < 2; ++i) {
      const int at_row = transposed ? 2 * (own % 4) + i : own / 4;
      const int at_column = transposed ? own / 4 : 2 * (own % 4) + i;
      halves[i] = from<const std::uint16_t*>(slots, m * 8 + at_row)[at_column];
    }
    matrices[m] = halves[0] | (halves[1] << 16);
  }
}

// Fragments, with g = lane / 4 and t = lane mod 4:
//   a (16 x 16)  a[0] row g, columns 2t and 2t + 1; a[1] row g + 8; a[2], a[3] the same rows, columns + 8
//   b (16 x 8)   b[0] rows 2t and 2t + 1, column g; b[1] rows + 8
//   d (16 x 8)   d[0], d[1] row g, columns 2t and 2t + 1; d[2], d[3] row g + 8
template <class T>
void HostContext::multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], int line) {
  struct Fragments {
    std::uint32_t a[4];
    std::uint32_t b[2];
  };
  const auto* slots = publish(Fragments{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, line);
  const auto element = [](std::uint32_t pair, int half) {
    T value;
    value.bits = static_cast<std::uint16_t>(half == 0 ? pair & 0xffffU : pair >> 16);
    return static_cast<float>(value);
  };
  const int g = lane() / 4;
  const int t = lane() % 4;
  float rows[2][16];
  float columns[2][16];
  for (int j = 0; j < 4; ++j) {
    const auto of_row = from<Fragments>(slots, g * 4 + j);
    for (int half = 0; half < 2; ++half) {
      for (int part = 0; part < 2; ++part) {  // k from 0 and from 8 on
        rows[0][part * 8 + 2 * j + half] = element(of_row.a[2 * part], half);
        rows[1][part * 8 + 2 * j + half] = element(of_row.a[2 * part + 1], half);
        for (int c = 0; c < 2; ++c) {
          const auto of_column = from<Fragments>(slots, (2 * t + c) * 4 + j);
          columns[c][part * 8 + 2 * j + half] = element(of_column.b[part], half);
        }
      }
    }
  }
  for (int k = 0; k < 16; ++k) {
    for (int i = 0; i < 4; ++i) d[i] += rows[i / 2][k] * columns[i % 2][k];
  }
}

}  // namespace heed::inline HEED_ABI
