// What the compiler and its flags mean for heed: checked once here, so that every other header may rely on it.
#pragma once

#include "heed/version.hpp"

// HEED_REFUSED keeps heed.hpp from including the rest, so that the one message is not followed by a thousand others.

// MSVC reports C++98 in __cplusplus unless told otherwise; _MSVC_LANG has the truth.
#if defined(_MSVC_LANG) ? _MSVC_LANG < 202002L : __cplusplus < 202002L
#error "heed needs C++20: compile with -std=c++20 (or link the CMake target heed::heed, which asks for it)."
#define HEED_REFUSED
#endif

// A query without keys, and a masked key, are infinities in the scores. -ffast-math lets the compiler assume there are
// none.
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "heed needs infinities and NaN: compile without -ffast-math / -ffinite-math-only."
#define HEED_REFUSED
#endif

#if defined(__cpp_exceptions)
#define HEED_EXCEPTIONS 1
#else
#define HEED_EXCEPTIONS 0
#endif

// Asserts inside kernels. On in debug builds, off with NDEBUG; define it to 0 or 1 to choose.
#if !defined(HEED_DEBUG)
#if defined(NDEBUG)
#define HEED_DEBUG 0
#else
#define HEED_DEBUG 1
#endif
#endif

#if HEED_DEBUG
#include <cassert>
#define HEED_ASSERT(condition) assert(condition)
#else
#define HEED_ASSERT(condition) static_cast<void>(0)
#endif

// Types that cross translation units with different -march (View, Tensor, options, state) keep their code out of the
// symbol table: the linker must never pick an AVX-512 body for a program part that runs on a machine without it. (A
// program of which all units have the same flags may define it as `inline`.)
#if defined(_MSC_VER) && !defined(__clang__)
#define HEED_NOINLINE __declspec(noinline)
#else
#define HEED_NOINLINE __attribute__((noinline))
#endif
#if defined(HEED_INLINE)
#elif defined(_MSC_VER) && !defined(__clang__)
#define HEED_INLINE __forceinline
#else
#define HEED_INLINE inline __attribute__((always_inline))
#endif

// Functions for what has gone wrong: out of the way, and so is what leads to them.
#if defined(_MSC_VER) && !defined(__clang__)
#define HEED_RARE HEED_NOINLINE
#else
#define HEED_RARE __attribute__((noinline, cold))
#endif

// Before a loop of constant count over an array of vectors: without full unrolling the array lives in memory, not in
// registers (g++ at -O2 does not unroll by itself).
#if defined(__clang__)
#define HEED_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define HEED_UNROLL _Pragma("GCC unroll 64")
#else
#define HEED_UNROLL
#endif

// ---------------------------------------------------------------------------------------------------------------------
// HEED_ABI names the inline namespace of everything whose code depends on compiler flags (kernels, backends, layers,
// raising of errors): instruction set, fused multiply-add, exceptions, debug checks. Two translation units with
// different flags then hold different symbols and each runs its own code. (The library heed::compiled names its
// instruction sets itself.)
#if defined(HEED_ABI_ISA)
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512CD__)
#define HEED_ABI_ISA avx512
#elif defined(__AVX512F__)
#define HEED_ABI_ISA avx512f
#elif defined(__AVX2__)
#define HEED_ABI_ISA avx2
#elif defined(__AVX__)
#define HEED_ABI_ISA avx
#elif defined(__SSE4_1__)
#define HEED_ABI_ISA sse4
#elif defined(__SSSE3__)
#define HEED_ABI_ISA ssse3
#elif defined(__SSE2__) || defined(_M_X64)
#define HEED_ABI_ISA sse2
#elif defined(__aarch64__)
#define HEED_ABI_ISA neon64
#else
#define HEED_ABI_ISA generic
#endif

// One rounding for a·b + c in hardware: decides whether the scalar and vector fma of core/simd.hpp are fused.
#if defined(__FMA__) || defined(__aarch64__) || defined(__AVX512F__)
#define HEED_FMA 1
#define HEED_ABI_FMA fma
#else
#define HEED_FMA 0
#define HEED_ABI_FMA mul
#endif

#if HEED_EXCEPTIONS
#define HEED_ABI_ERRORS throws
#else
#define HEED_ABI_ERRORS aborts
#endif

#if HEED_DEBUG
#define HEED_ABI_CHECKS checked
#else
#define HEED_ABI_CHECKS fast
#endif

#define HEED_ABI_JOIN(isa, fma, errors, checks) isa##_##fma##_##errors##_##checks
#define HEED_ABI_EXPAND(isa, fma, errors, checks) HEED_ABI_JOIN(isa, fma, errors, checks)
#define HEED_ABI HEED_ABI_EXPAND(HEED_ABI_ISA, HEED_ABI_FMA, HEED_ABI_ERRORS, HEED_ABI_CHECKS)
