// Fiber: a stack of its own to run a function on, left and entered again at will. For the host executor (not for
// programs): each of a kernel's threads is one. Known to the address and thread sanitizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "heed/config.hpp"

#if !defined(__x86_64__) || defined(_WIN32)
#define HEED_FIBER_UCONTEXT 1
#include <ucontext.h>
#else
#define HEED_FIBER_UCONTEXT 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HEED_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEED_FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define HEED_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEED_FIBER_TSAN 1
#endif
#endif
#if !defined(HEED_FIBER_ASAN)
#define HEED_FIBER_ASAN 0
#endif
#if !defined(HEED_FIBER_TSAN)
#define HEED_FIBER_TSAN 0
#endif

#if HEED_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if HEED_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#define HEED_NOT_TSAN __attribute__((no_sanitize("thread")))
#else
#define HEED_NOT_TSAN
#endif

namespace heed::inline HEED_ABI::impl {

#if !HEED_FIBER_UCONTEXT
// Saves the callee-saved registers on this stack and its pointer in *save, and goes on with the other.
__attribute__((naked, noinline)) inline void switch_stack(void** /*save*/, void* /*to*/) {
  asm volatile(
      "pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
      "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
      "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}
#endif

class Fiber {
 public:
  using Entry = void (*)(void*);

  explicit Fiber(std::size_t stack_bytes)
      : bytes_(stack_bytes), stack_(static_cast<char*>(std::aligned_alloc(64, stack_bytes))) {
    if (stack_ == nullptr) throw std::bad_alloc();
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() {
#if HEED_FIBER_TSAN
    if (tsan_ != nullptr) __tsan_destroy_fiber(tsan_);
#endif
    std::free(stack_);
  }

  // Makes resume() begin with entry(argument), wherever the fiber was left before.
  HEED_NOT_TSAN void reset(Entry entry, void* argument) {
    entry_ = entry;
    argument_ = argument;
    done_ = false;
#if HEED_FIBER_ASAN
    __asan_unpoison_memory_region(stack_, bytes_);  // frames of the run before left red zones
#endif
#if HEED_FIBER_TSAN
    if (tsan_ == nullptr) tsan_ = __tsan_create_fiber(0);
#endif
#if HEED_FIBER_UCONTEXT
    getcontext(&own_context_);
    own_context_.uc_stack.ss_sp = stack_;
    own_context_.uc_stack.ss_size = bytes_;
    own_context_.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&own_context_, reinterpret_cast<void (*)()>(&begin_parts), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(static_cast<std::uint64_t>(self) >> 32));
#else
    auto* top = reinterpret_cast<std::uintptr_t*>(stack_ + bytes_);
    *--top = 0;  // keeps the stack pointer at 8 modulo 16 on entry, as after a call
    *--top = reinterpret_cast<std::uintptr_t>(&begin);
    for (int i = 0; i < 6; ++i) *--top = 0;
    own_stack_ = top;
#endif
  }
  bool done() const {
    return done_;
  }

  // From the caller into the fiber, until it yields or its function returns.
  HEED_NOT_TSAN void resume() {
#if HEED_FIBER_TSAN
    main_tsan_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_, 1);  // 1: that the switch orders anything is not to be believed
#endif
#if HEED_FIBER_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_, bytes_);
#endif
#if HEED_FIBER_UCONTEXT
    swapcontext(&main_context_, &own_context_);
#else
    beginning() = this;
    switch_stack(&main_stack_, own_stack_);
#endif
#if HEED_FIBER_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
#if HEED_FIBER_TSAN
    if (done_) {
      __tsan_destroy_fiber(tsan_);
      tsan_ = nullptr;
    }
#endif
  }

  // From the fiber back to its caller.
  HEED_NOT_TSAN void yield() {
#if HEED_FIBER_TSAN
    __tsan_switch_to_fiber(main_tsan_, 1);
#endif
#if HEED_FIBER_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(done_ ? nullptr : &fake, main_bottom_, main_size_);
#endif
#if HEED_FIBER_UCONTEXT
    swapcontext(&own_context_, &main_context_);
#else
    switch_stack(&own_stack_, main_stack_);
#endif
#if HEED_FIBER_ASAN
    __sanitizer_finish_switch_fiber(fake, &main_bottom_, &main_size_);
#endif
  }

 private:
  HEED_NOT_TSAN void run() {
#if HEED_FIBER_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &main_bottom_, &main_size_);
#endif
    entry_(argument_);
    done_ = true;
    yield();
    std::abort();
  }
#if HEED_FIBER_UCONTEXT
  static void begin_parts(unsigned low, unsigned high) {
    const std::uint64_t self = (static_cast<std::uint64_t>(high) << 32) | low;
    reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(self))->run();
  }
  ucontext_t own_context_;
  ucontext_t main_context_;
#else
  static Fiber*& beginning() {
    thread_local Fiber* fiber = nullptr;
    return fiber;
  }
  HEED_NOT_TSAN static void begin() {
    beginning()->run();
  }
  void* own_stack_ = nullptr;
  void* main_stack_ = nullptr;
#endif
  std::size_t bytes_;
  char* stack_;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  bool done_ = true;
#if HEED_FIBER_ASAN
  const void* main_bottom_ = nullptr;
  std::size_t main_size_ = 0;
#endif
#if HEED_FIBER_TSAN
  void* tsan_ = nullptr;
  void* main_tsan_ = nullptr;
#endif
};

}  // namespace heed::inline HEED_ABI::impl
