// bfloat16 and float16 to float and back, and 8-bit codes to float, a vector at a time, for core/simd.hpp. The same bits as core/scalar.hpp in every
// case: its formulas in the compiler's own vectors, or one instruction where there is one that agrees. For float16 that is
// F16C, AVX-512F and NEON; for bfloat16 none (AVX-512's takes subnormal numbers for zero).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "heed/core/intrinsics.hpp"
#include "heed/core/scalar.hpp"

namespace heed::inline HEED_ABI::simd::detail {

// The same bits as another type of that size.
template <class To, class From>
HEED_INLINE To cast_bits(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

#if defined(__GNUC__)

template <class E, int N>
struct CompilerVector {
  typedef E type __attribute__((vector_size(N * sizeof(E))));
};
template <int N>
using Floats = typename CompilerVector<float, N>::type;
template <int N>
using Words = typename CompilerVector<std::uint32_t, N>::type;
template <int N>
using Halves = typename CompilerVector<std::uint16_t, N>::type;

// N halves as words, and words < 65536 as halves. What the compilers make of __builtin_convertvector alone is right but
// takes up to four times as many instructions.
template <int N>
HEED_INLINE Words<N> load_halves(const void* from) noexcept {
  Halves<N> halves;
  std::memcpy(&halves, from, sizeof(halves));
#if defined(__AVX512F__)
  if constexpr (N == 16) return cast_bits<Words<N>>(_mm512_cvtepu16_epi32(cast_bits<__m256i>(halves)));
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) return cast_bits<Words<N>>(_mm256_cvtepu16_epi32(cast_bits<__m128i>(halves)));
#endif
#if defined(__SSE2__)
  if constexpr (N == 4) {
    const __m128i low = _mm_loadl_epi64(static_cast<const __m128i*>(from));
    return cast_bits<Words<N>>(_mm_unpacklo_epi16(low, _mm_setzero_si128()));
  }
#elif defined(__aarch64__)
  if constexpr (N == 4) return cast_bits<Words<N>>(vmovl_u16(cast_bits<uint16x4_t>(halves)));
#endif
  return __builtin_convertvector(halves, Words<N>);
}

template <int N>
HEED_INLINE void store_halves(void* to, Words<N> words) noexcept {
#if defined(__AVX512F__)
  if constexpr (N == 16) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_cvtepi32_epi16(cast_bits<__m512i>(words)));
    return;
  }
#endif
#if defined(__SSE2__)
  if constexpr (N == 4) {
    const auto low = cast_bits<__m128i>(words << 16);  // packing is for signed numbers
    _mm_storel_epi64(static_cast<__m128i*>(to), _mm_packs_epi32(_mm_srai_epi32(low, 16), low));
    return;
  }
#endif
  const Halves<N> halves = __builtin_convertvector(words, Halves<N>);
  std::memcpy(to, &halves, sizeof(halves));
}

// N 8-bit codes. (Again, __builtin_convertvector alone becomes many times as many instructions.)
template <int N>
HEED_INLINE Floats<N> widen_vector(const std::int8_t* from) noexcept {
#if defined(__AVX512F__)
  if constexpr (N == 16) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return cast_bits<Floats<N>>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)));
  }
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return cast_bits<Floats<N>>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)));
  }
#endif
#if defined(__SSE2__)
  if constexpr (N == 4) {
    std::int32_t four = 0;
    std::memcpy(&four, from, sizeof(four));
    const __m128i bytes = _mm_cvtsi32_si128(four);
    const __m128i twice = _mm_unpacklo_epi8(bytes, bytes);
    return cast_bits<Floats<N>>(_mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(twice, twice), 24)));
  }
#endif
  float numbers[N];
  for (int i = 0; i < N; ++i) numbers[i] = static_cast<float>(from[i]);
  return cast_bits<Floats<N>>(numbers);
}

template <int N>
HEED_INLINE Floats<N> widen_vector(const bfloat16* from) noexcept {
  return cast_bits<Floats<N>>(load_halves<N>(from) << 16);
}

template <int N>
HEED_INLINE void narrow_vector(bfloat16* to, Floats<N> value) noexcept {
  const auto word = cast_bits<Words<N>>(value);
  const Words<N> rounded = word + 0x7fffU + ((word >> 16) & 1U);
  store_halves<N>(to, (value != value ? word | 0x00400000U : rounded) >> 16);
}

// As in core/scalar.hpp, but all branches are computed and one is chosen. What is compared there as integers is compared
// here as the floats of those bits, which AVX without AVX2 can, too.
template <int N>
HEED_INLINE Floats<N> widen_vector(const float16* from) noexcept {
#if defined(__AVX512F__)
  if constexpr (N == 16) return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#endif
#if defined(__F16C__)
  if constexpr (N == 8) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#endif
#if defined(__aarch64__)
  if constexpr (N == 4) {
    const uint16x4_t halves = vld1_u16(reinterpret_cast<const std::uint16_t*>(from));
    return cast_bits<Floats<N>>(vcvt_f32_f16(vreinterpret_f16_u16(halves)));
  }
#endif
  const Words<N> half = load_halves<N>(from);
  const Words<N> sign = (half & 0x8000U) << 16;
  const Words<N> rest = (half & 0x7fffU) << 13;
  const auto size = cast_bits<Floats<N>>(rest);
  const float infinity = std::bit_cast<float>(0x0f800000U);
  const float least = std::bit_cast<float>(0x38800000U);
  const Words<N> quiet = size > infinity ? Words<N>{} + 0x00400000U : Words<N>{};
  const auto subnormal = cast_bits<Words<N>>(cast_bits<Floats<N>>(rest + 0x38800000U) - least);
  const Words<N> finite = size < std::bit_cast<float>(0x00800000U) ? subnormal : rest + 0x38000000U;
  return cast_bits<Floats<N>>((size < infinity ? finite : (rest + 0x70000000U) | quiet) | sign);
}

template <int N>
HEED_INLINE void narrow_vector(float16* to, Floats<N> value) noexcept {
#if defined(__AVX512F__)
  if constexpr (N == 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    return;
  }
#endif
#if defined(__F16C__)
  if constexpr (N == 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    return;
  }
#endif
#if defined(__aarch64__)
  if constexpr (N == 4) {
    const float16x4_t halves = vcvt_f16_f32(cast_bits<float32x4_t>(value));
    vst1_u16(reinterpret_cast<std::uint16_t*>(to), vreinterpret_u16_f16(halves));
    return;
  }
#endif
  const auto word = cast_bits<Words<N>>(value);
  const Words<N> magnitude = word & 0x7fffffffU;
  const auto size = cast_bits<Floats<N>>(magnitude);
  const Words<N> nan = ((magnitude >> 13) & 0x3ffU) | 0x7e00U;
  const Words<N> special = value != value ? nan : Words<N>{} + 0x7c00U;
  const Words<N> normal = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  const Words<N> subnormal = cast_bits<Words<N>>(size + 0.5F) - 0x3f000000U;
  const Words<N> finite = size < std::bit_cast<float>(0x38800000U) ? subnormal : normal;
  store_halves<N>(to, (size < 65520.0F ? finite : special) | ((word >> 16) & 0x8000U));
}

#else

// Other compilers: a lane at a time.
template <int N>
struct Floats {
  float lane[N];
};
template <int N, class T>
HEED_INLINE Floats<N> widen_vector(const T* from) noexcept {
  Floats<N> value;
  for (int i = 0; i < N; ++i) value.lane[i] = widen(from[i]);
  return value;
}
template <int N, class T>
HEED_INLINE void narrow_vector(T* to, Floats<N> value) noexcept {
  for (int i = 0; i < N; ++i) to[i] = narrow<T>(value.lane[i]);
}

#endif

}  // namespace heed::inline HEED_ABI::simd::detail
