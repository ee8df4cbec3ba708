// HeadLayout: how many heads of what size, as a template argument of the attention layers.
#pragma once

#include "heed/core/shape.hpp"

namespace heed {

// A head count or size that is given at construction instead of at compile time.
inline constexpr Index dynamic = -1;

// heed::HeadLayout{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64}. Query head h reads kv head h / (num_heads /
// num_kv_heads). Left out, num_kv_heads is num_heads and value_head_dim is head_dim, so equal layouts are one type.
struct HeadLayout {
  Index num_heads = dynamic;
  Index num_kv_heads = num_heads;
  Index head_dim = dynamic;
  Index value_head_dim = head_dim;

  // Query heads that share one kv head.
  constexpr Index group_size() const noexcept { return num_heads / num_kv_heads; }
  friend constexpr bool operator==(const HeadLayout&, const HeadLayout&) = default;
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// Every size known and positive, num_heads a multiple of num_kv_heads.
inline Problem check_layout(const char* door, const HeadLayout& layout) noexcept {
  const struct {
    const char* name;
    Index value;
  } sizes[] = {{"num_heads", layout.num_heads},
               {"num_kv_heads", layout.num_kv_heads},
               {"head_dim", layout.head_dim},
               {"value_head_dim", layout.value_head_dim}};
  for (const auto& size : sizes) {
    if (size.value == dynamic) {
      return problem_at(ErrorKind::option, door, size.name)
          .append("is dynamic in the layer's type and must be given at construction");
    }
    if (size.value < 1) {
      return problem_at(ErrorKind::option, door, size.name).append("must be at least 1, got ").append(size.value);
    }
  }
  if (layout.num_heads % layout.num_kv_heads != 0) {
    return problem_at(ErrorKind::shape, door, "num_heads")
        .append(layout.num_heads)
        .append(" is not a multiple of num_kv_heads ")
        .append(layout.num_kv_heads);
  }
  return {};
}

// The layout a layer works with: `fixed` is its template argument, `given` what the constructor was handed. A size that
// both name must agree.
inline Problem resolve_layout(const char* door, const HeadLayout& fixed, const HeadLayout& given,
                              HeadLayout& resolved) noexcept {
  resolved = fixed;
  const struct {
    const char* name;
    Index given;
    Index* resolved;
  } sizes[] = {{"num_heads", given.num_heads, &resolved.num_heads},
               {"num_kv_heads", given.num_kv_heads, &resolved.num_kv_heads},
               {"head_dim", given.head_dim, &resolved.head_dim},
               {"value_head_dim", given.value_head_dim, &resolved.value_head_dim}};
  for (const auto& size : sizes) {
    if (size.given == dynamic) continue;
    if (*size.resolved != dynamic && *size.resolved != size.given) {
      return problem_at(ErrorKind::shape, door, size.name)
          .append("the layer's type says ")
          .append(*size.resolved)
          .append(", the constructor was given ")
          .append(size.given);
    }
    *size.resolved = size.given;
  }
  return check_layout(door, resolved);
}

// head_dim where it follows from hidden_size; a remainder is an error, never a silent truncation.
inline Problem head_dim_of(const char* door, Index hidden_size, Index num_heads, Index& head_dim) noexcept {
  if (num_heads < 1 || hidden_size % num_heads != 0) {
    return problem_at(ErrorKind::shape, door, "hidden_size")
        .append(hidden_size)
        .append(" is not a multiple of num_heads ")
        .append(num_heads);
  }
  head_dim = hidden_size / num_heads;
  return {};
}

}  // namespace heed::inline HEED_ABI
