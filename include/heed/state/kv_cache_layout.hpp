// What all KV caches share: their sizes, which tokens of a call are appended, and the checks of both.
#pragma once

#include <cstdint>
#include <limits>

#include "heed/core/shape.hpp"
#include "heed/ops/key_values.hpp"

namespace heed {

// What one token of one attention layer is in a cache.
struct KvCacheLayout {
  Index num_kv_heads = 1;
  Index head_dim = 1;
  Index value_head_dim = head_dim;

  HEED_INLINE friend constexpr bool operator==(const KvCacheLayout& a, const KvCacheLayout& b) noexcept {
    return a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim && a.value_head_dim == b.value_head_dim;
  }
};

// Which of a call's tokens [B, T] there are; the others are padding. Both absent: all. Both given: those that are both.
struct PresentTokens {
  View<const bool, 2> valid = {};            // [B, T]
  View<const std::int64_t, 1> lengths = {};  // [B]: the first ones of each row

  HEED_INLINE bool operator()(Index row, Index t) const noexcept {
    return (!valid.present() || valid(row, t)) && (!lengths.present() || t < lengths(row));
  }
  // How many of a row's `tokens`.
  HEED_INLINE Index count(Index row, Index tokens) const noexcept {
    Index end = tokens;
    if (lengths.present() && lengths(row) < end) end = static_cast<Index>(lengths(row));
    if (!valid.present()) return end;
    Index present = 0;
    for (Index t = 0; t < end; ++t) present += valid(row, t) ? 1 : 0;
    return present;
  }
};

// What a cache without a limit says to append_limit().
inline constexpr Index unlimited_tokens = std::numeric_limits<Index>::max();

}  // namespace heed

namespace heed::inline HEED_ABI {

// A cache handed to a layer: does it have such heads, and as many rows?
[[nodiscard]] inline Problem check_kv_cache(const char* door, const KvCacheLayout& cache, Index cache_batch,
                                            const KvCacheLayout& layer, Index batch) noexcept {
  if (!(cache == layer)) {
    return problem_at(ErrorKind::shape, door, "cache")
        .append("expected num_kv_heads ")
        .append(layer.num_kv_heads)
        .append(", head_dim ")
        .append(layer.head_dim)
        .append(", value_head_dim ")
        .append(layer.value_head_dim)
        .append(", got ")
        .append(cache.num_kv_heads)
        .append(", ")
        .append(cache.head_dim)
        .append(", ")
        .append(cache.value_head_dim)
        .append("; use the layer's make_cache()");
  }
  if (cache_batch == batch) return {};
  return problem_at(ErrorKind::shape, door, "cache")
      .append("is for a batch of ")
      .append(cache_batch)
      .append(", the call's is ")
      .append(batch);
}

// The sizes a cache is made with.
[[nodiscard]] inline Problem check_kv_size(const char* cache, const char* name, Index value, Index least) noexcept {
  if (value >= least) return {};
  return problem_at(ErrorKind::option, cache, name)
      .append("must be at least ")
      .append(least)
      .append(", got ")
      .append(value);
}
[[nodiscard]] inline Problem check_kv_layout(const char* cache, const KvCacheLayout& layout, Index batch) noexcept {
  return first_problem(check_kv_size(cache, "num_kv_heads", layout.num_kv_heads, 1),
                       check_kv_size(cache, "head_dim", layout.head_dim, 1),
                       check_kv_size(cache, "value_head_dim", layout.value_head_dim, 1),
                       check_kv_size(cache, "batch", batch, 0));
}

// The tensors handed to append().
template <class T>
[[nodiscard]] Problem check_kv_append(const char* door, const KvCacheLayout& layout, Index batch,
                                      const View<const T, 4>& key, const View<const T, 4>& value,
                                      const PresentTokens& which) noexcept {
  const Axis rows{"batch", batch};
  const Axis seq{"seq", key.extent(1)};
  const Axis heads{"kv heads", layout.num_kv_heads};
  Problem problem =
      first_problem(check_input(door, "key", key, {rows, {"seq", any}, heads, {"head dim", layout.head_dim}}),
                    check_input(door, "value", value, {rows, seq, heads, {"value head dim", layout.value_head_dim}}));
  if (!problem && which.valid.present()) problem = check_input(door, "valid", which.valid, {rows, seq});
  if (!problem && which.lengths.present()) problem = check_input(door, "lengths", which.lengths, {rows});
  for (Index b = 0; !problem && which.lengths.present() && b < batch; ++b) {
    const auto length = static_cast<Index>(which.lengths(b));
    if (length >= 0 && length <= key.extent(1)) continue;
    problem = problem_at(ErrorKind::option, door, "lengths")
                  .append("must be from 0 to ")
                  .append(key.extent(1))
                  .append(", got ")
                  .append(length)
                  .append(" for batch row ")
                  .append(b);
  }
  return problem;
}

// A row's number.
[[nodiscard]] inline Problem check_kv_row(const char* door, const char* name, Index row, Index batch) noexcept {
  if (row >= 0 && row < batch) return {};
  return problem_at(ErrorKind::option, door, name)
      .append("must be in 0 to ")
      .append(batch - 1)
      .append(", got ")
      .append(row);
}

// What reorder() is handed.
[[nodiscard]] inline Problem check_kv_sources(const char* door, View<const std::int64_t, 1> sources,
                                              Index batch) noexcept {
  Problem problem = check_input(door, "sources", sources, {{"batch", batch}});
  for (Index b = 0; !problem && b < batch; ++b)
    problem = check_kv_row(door, "sources", static_cast<Index>(sources(b)), batch);
  return problem;
}

// A row made shorter: to `length`, which is at most what it has and at least `least`, below which tokens are gone.
[[nodiscard]] inline Problem check_kv_truncate(const char* door, Index row, Index length, Index least,
                                               Index has) noexcept {
  if (length >= 0 && length <= has && (length == has || length >= least)) return {};
  Problem problem = problem_at(ErrorKind::option, door, "length");
  problem.append("row ").append(row).append(" has ").append(has).append(" tokens");
  if (least > 0) problem.append(" and can be cut to ").append(least).append(" of them");
  return problem.append(", got ").append(length);
}

// "heed: StaticKvCache::append: cache: holds at most 4 tokens a row (its capacity); row 0 has 4 and would get 1"
[[nodiscard]] inline Problem row_is_full(const char* door, Index capacity, Index row, Index has, Index more) noexcept {
  return problem_at(ErrorKind::capacity, door, "cache")
      .append("holds at most ")
      .append(capacity)
      .append(" tokens a row (its capacity); row ")
      .append(row)
      .append(" has ")
      .append(has)
      .append(" and would get ")
      .append(more);
}

}  // namespace heed::inline HEED_ABI
