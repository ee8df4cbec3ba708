// HostContext: what a kernel sees of its thread when the host executor runs it. CudaContext has the same members.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "heed/core/scalar.hpp"
#include "heed/core/view.hpp"

namespace heed::inline HEED_ABI {

namespace impl {
class HostBlock;
}

class HostContext {
 public:
  // The thread in its block, in its warp of 32; its warp in the block; its block in the grid, and how many there are.
  int thread() const noexcept { return thread_; }
  int lane() const noexcept { return thread_ % 32; }
  int warp() const noexcept { return thread_ / 32; }
  Index block() const noexcept { return block_index_; }
  Index blocks() const noexcept { return blocks_; }

  // All threads of the block, or of the warp, have come here before any goes on; what they wrote before is seen after.
  void sync(int line = __builtin_LINE());
  void sync_warp(int line = __builtin_LINE());

  // The value of another lane; all lanes of the warp call it together.
  template <class T>
  T shuffle_xor(const T& value, int mask, int line = __builtin_LINE()) {
    return from<T>(publish(value, line), lane() ^ mask);
  }
  template <class T>
  T shuffle(const T& value, int source, int line = __builtin_LINE()) {
    return from<T>(publish(value, line), source);
  }

  // An array that the block shares, aligned to 128 bytes; all threads ask for the same arrays in the same order.
  template <class T>
  T* shared(int count) {
    return static_cast<T*>(shared_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

  // 16 bytes from global to shared memory, both aligned to 16; zeros if there is nothing to be read. They are there after
  // wait_copies<N>() by the same thread, N being the newest groups that it need not wait for, and seen by others after
  // sync(). (Here they come only then, so that a missing wait shows.)
  void copy_async(void* to, const void* from, bool present = true);
  void commit_copies() { groups_.emplace_back(); }
  template <int N>
  void wait_copies() {
    wait_for_groups(N);
  }

  // ldmatrix .x4: four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l mod 8 of matrix l / 8.
  void load_matrices(std::uint32_t (&matrices)[4], const void* row, bool transposed, int line = __builtin_LINE());
  // mma .m16n8k16: d += a · b, fragments as PTX lays them out; T is bfloat16 or float16.
  template <class T>
  void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], int line = __builtin_LINE());

  // Two elements of T in one word, the first in its lower half.
  template <class T>
  static std::uint32_t pack(float first, float second) noexcept {
    return T(first).bits | (static_cast<std::uint32_t>(T(second).bits) << 16);
  }
  template <class T>
  static accumulator_t<T> widen(T value) noexcept {
    return heed::widen(value);
  }
  template <class T>
  static T narrow(accumulator_t<T> value) noexcept {
    return heed::narrow<T>(value);
  }

  // Of float or double.
  template <class A>
  static A exp(A x) noexcept {
    return std::exp(x);
  }
  template <class A>
  static A exp2(A x) noexcept {
    return std::exp2(x);
  }
  static float fast_exp2(float x) noexcept { return std::exp2(x); }  // to 2^-22, and 0 for what is not normal
  // The larger one, or the one that is not NaN.
  static float max(float a, float b) noexcept { return std::fmax(a, b); }
  template <class A>
  static A log(A x) noexcept {
    return std::log(x);
  }
  template <class A>
  static A tanh(A x) noexcept {
    return std::tanh(x);
  }
  template <class A>
  static A erf(A x) noexcept {
    return std::erf(x);
  }
  template <class A>
  static A sqrt(A x) noexcept {
    return std::sqrt(x);
  }
  template <class A>
  static A fma(A a, A b, A c) noexcept {
    return std::fma(a, b, c);
  }
  static void sin_cos(double x, double& sin, double& cos) noexcept {
    sin = std::sin(x);
    cos = std::cos(x);
  }

 private:
  friend class impl::HostBlock;

  struct alignas(16) Slot {
    unsigned char bytes[32];
  };
  struct Copy {
    void* to;
    const void* from;
    bool present;
  };
  struct Group {
    std::vector<Copy> copies;
  };

  // All lanes store a value and meet; from() reads one, until the publish after next.
  template <class T>
  const Slot* publish(const T& value, int line);
  template <class T>
  T from(const Slot* slots, int source) const;
  void* shared_bytes(std::size_t bytes);
  void wait_for_groups(std::size_t newest);

  impl::HostBlock* host_block_ = nullptr;
  int thread_ = 0;
  int parity_ = 0;
  int shared_arrays_ = 0;
  Index block_index_ = 0;
  Index blocks_ = 0;
  std::vector<Group> groups_;  // of copies; the last one is open
};

}  // namespace heed::inline HEED_ABI
