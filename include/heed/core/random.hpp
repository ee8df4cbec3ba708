// Random numbers without state: Philox4x32-10 turns a counter and a key into four random words, so that any number of a
// sequence can be had alone, by any thread, in any order.
//
// Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.
#pragma once

#include <cmath>
#include <cstdint>

#include "heed/core/anywhere.hpp"
#include "heed/core/scalar.hpp"
#include "heed/core/tensor.hpp"

namespace heed {

// Four words of 32 bits: what Philox counts with and what it gives.
struct RandomWords {
  std::uint32_t words[4] = {};

  HEED_ANYWHERE constexpr std::uint32_t operator[](Index lane) const noexcept {
    // Not words[lane]: on a device registers have no index, so they would all go to memory.
    return lane == 0 ? words[0] : lane == 1 ? words[1] : lane == 2 ? words[2] : words[3];
  }
};

// Philox4x32-10: four random words for each counter under each seed (the key: its low, then its high word). For one
// seed, different counters give different words; equal arguments give equal words on every machine.
HEED_ANYWHERE constexpr RandomWords philox(std::uint64_t seed, RandomWords counter) noexcept {
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * counter.words[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * counter.words[2];
    counter = {
        {static_cast<std::uint32_t>(product1 >> 32) ^ counter.words[1] ^ key0, static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ counter.words[3] ^ key1, static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9U;  // the golden ratio
    key1 += 0xBB67AE85U;  // √3 − 1
  }
  return counter;
}

// A word as a float in [0, 1): its upper 24 bits, in steps of 2^-24.
HEED_INLINE constexpr float uniform_float(std::uint32_t word) noexcept {
  return static_cast<float>(word >> 8) * 0x1p-24F;
}

// Two words as a double in [0, 1): 53 bits, in steps of 2^-53.
HEED_INLINE constexpr double uniform_double(std::uint32_t high, std::uint32_t low) noexcept {
  return static_cast<double>(((std::uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}

}  // namespace heed

namespace heed::inline HEED_ABI {

namespace impl {

// The block that holds values 2n and 2n + 1 of a stream.
inline RandomWords random_block(std::uint64_t seed, std::uint64_t stream, std::uint64_t n) noexcept {
  return philox(seed, {{static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32),
                        static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}});
}

// Sets element i, counted row-major whatever the strides, to value(i).
template <class T, int Rank, class Value>
std::uint64_t fill_elements(View<T, Rank> out, std::uint64_t i, const Value& value) noexcept {
  for (Index row = 0; row < out.extent(0); ++row) {
    if constexpr (Rank == 1) {
      out(row) = static_cast<T>(static_cast<accumulator_t<T>>(value(i++)));
    } else {
      i = fill_elements(out[row], i, value);
    }
  }
  return i;
}

}  // namespace impl

// Value i of a stream of uniform numbers in [0, 1), 53 bits. Streams of one seed are independent: one for each tensor.
inline double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) noexcept {
  const RandomWords block = impl::random_block(seed, stream, i / 2);
  return i % 2 == 0 ? uniform_double(block[0], block[1]) : uniform_double(block[2], block[3]);
}

// Value i of a stream of standard normal numbers (Box and Muller: a block's two uniform numbers make two normal ones).
// The bits are those of the C library's log, sin and cos.
inline double random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) noexcept {
  const RandomWords block = impl::random_block(seed, stream, i / 2);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_double(block[0], block[1])));  // 1 − u is never 0
  const double angle = 6.283185307179586 * uniform_double(block[2], block[3]);
  return radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// Fills a tensor with low + (high − low) · u, u uniform in [0, 1).
//
//   out  any axes, any strides; element i, counted row-major, depends on seed, stream and i only
//
// Formed in double with one rounding and rounded to T: a float tensor is the rounded double tensor of the same seed.
// (Rounding can reach `high`.) Allocates nothing.
template <class Out>
void fill_uniform(Out&& out, std::uint64_t seed, std::uint64_t stream, double low, double high) noexcept {
  impl::fill_elements(output_view(out), 0, [&](std::uint64_t i) {
    return std::fma(high - low, random_uniform(seed, stream, i), low);  // fma: the same bits with and without FMA units
  });
}

// Fills a tensor with normal numbers; the same promises as fill_uniform().
template <class Out>
void fill_normal(Out&& out, std::uint64_t seed, std::uint64_t stream, double mean, double deviation) noexcept {
  impl::fill_elements(output_view(out), 0,
                      [&](std::uint64_t i) { return std::fma(deviation, random_normal(seed, stream, i), mean); });
}

}  // namespace heed::inline HEED_ABI
