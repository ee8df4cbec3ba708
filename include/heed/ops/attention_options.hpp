// What ops::attention can be asked for, as plain data.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

#include "heed/core/scalar.hpp"
#include "heed/core/tensor.hpp"
#include "heed/core/view.hpp"

namespace heed {

// Which keys a query may see by order, and where its position is counted from.
//
//   none          all keys                       query t is at position t
//   top_left      keys up to its own position    query t is at position t
//   bottom_right  keys up to its own position    query t is at position t + length − T: the last query sees every key
//
// length is the row's number of keys (key_lengths, else S). Given query_offsets replace either count.
enum class Causal { none, top_left, bottom_right };

// How many keys before (left) and after (right) its own position a query sees; −1 is no limit. The position itself is
// always inside: a sliding window of W keys is {W − 1, 0}. Works with and without Causal.
struct Window {
  Index left = -1;
  Index right = -1;
};

// The factor of q·k: a number (0 and negative ones too), or, default-made, 1/√D.
template <class A>
class ScoreScale {
 public:
  HEED_INLINE constexpr ScoreScale() noexcept = default;
  HEED_INLINE constexpr ScoreScale(A value) noexcept : value_(value), given_(true) {}

  HEED_ANYWHERE bool given() const noexcept { return given_; }
  // The factor for a head dim. (Without dimensions every product is 0, whatever the factor.)
  HEED_ANYWHERE A value(Index head_dim) const noexcept {
    if (given_) return value_;
    return head_dim > 0 ? static_cast<A>(1 / std::sqrt(static_cast<double>(head_dim))) : A(1);
  }

 private:
  A value_ = 0;
  bool given_ = false;
};

// A view of 1 to 4 axes that is read as [batch, heads, queries, keys]: axes are aligned from the right, missing ones
// and those of extent 1 repeat. Made implicitly from any View or Tensor of M; default-made it is absent.
// (fwd.hpp: Space = Host.)
template <class M, class Space>
class ScoreView {
 public:
  HEED_INLINE constexpr ScoreView() noexcept = default;

  template <class Tensorlike>
  requires(std::same_as<scalar_t<Tensorlike>, M>&& std::is_same_v<typename Tensorlike::space_type, Space>&&
               std::remove_cvref_t<Tensorlike>::rank() <= 4) HEED_INLINE ScoreView(const Tensorlike& tensor)
  noexcept {
    constexpr int rank = Tensorlike::rank();
    const View<const M, rank, Space> view = tensor;
    data_ = view.data_handle();
    rank_ = rank;
    for (int axis = 0; axis < rank; ++axis) {
      extents_[4 - rank + axis] = view.extent(axis);
      strides_[4 - rank + axis] = view.extent(axis) == 1 ? 0 : view.stride(axis);
    }
  }

  // The same in another space: what a kernel or a check sees.
  template <class Other>
  requires(!std::is_same_v<Other, Space>) HEED_INLINE explicit ScoreView(const ScoreView<M, Other>& other) noexcept
      : data_(other.row(0, 0, 0)), rank_(other.rank()) {
    for (int axis = 0; axis < 4; ++axis) {
      extents_[axis] = other.extent(axis);
      strides_[axis] = other.stride(axis);
    }
  }

  HEED_ANYWHERE bool present() const noexcept { return data_ != nullptr; }
  // The axes as they were given.
  HEED_ANYWHERE int rank() const noexcept { return rank_; }
  // Of the four axes batch, heads, queries, keys.
  HEED_ANYWHERE Index extent(int axis) const noexcept { return extents_[axis]; }
  HEED_ANYWHERE Index stride(int axis) const noexcept { return strides_[axis]; }
  // Elements for keys 0, 1, … of one query; they are key_stride() apart: 1, or 0 where one element is for all keys.
  HEED_ANYWHERE const M* row(Index batch, Index head, Index query) const noexcept {
    return data_ + batch * strides_[0] + head * strides_[1] + query * strides_[2];
  }
  HEED_ANYWHERE Index key_stride() const noexcept { return strides_[3]; }

 private:
  const M* data_ = nullptr;
  int rank_ = 0;
  Index extents_[4] = {1, 1, 1, 1};
  Index strides_[4] = {0, 0, 0, 0};
};

// Everything optional about attention over scalars T; A = accumulator_t<T>. Members are views: what they show must live
// until the call returns (on a device: until it is done). (fwd.hpp: Space = Host.)
template <class T, class Space>
struct AttentionOptions {
  using A = accumulator_t<T>;

  ScoreScale<A> scale = {};  // of q·k; left out: 1/√D
  A softcap = 0;             // c > 0: scores become c · tanh(score / c), before any mask; 0: off
  Causal causal = Causal::none;
  Window window = {};
  ScoreView<bool, Space> mask = {};           // true = attend
  ScoreView<A, Space> bias = {};              // added to the scores; −inf = do not attend
  View<const A, 1, Space> alibi_slopes = {};  // [num_heads]: score −= slope · |query position − key position|
  View<const A, 1, Space> sinks = {};         // [num_heads]: a logit without a value, in maximum and sum
  View<const std::int64_t, 1, Space> key_lengths = {};  // [batch]: keys of each row that exist, 0 … S
  View<const std::int64_t, 1, Space> query_offsets =
      {};                              // [batch]: position of query 0; a cache's length before append
  A dropout = 0;                       // 0 ≤ p < 1: weights dropped, the others scaled by 1 / (1 − p)
  std::uint64_t dropout_seed = 0;      // which are dropped depends on seed, batch, head, positions only
  View<A, 3, Space> log_sum_exp = {};  // out [batch, heads, T]: natural log; −inf for a row without keys
  View<T, 4, Space> weights = {};      // out [batch, heads, T, S]: after softmax and dropout
};

// The sizes of a call, or the largest of many calls, for attention_workspace_size().
struct AttentionExtents {
  Index batch = 1;
  Index queries = 0;  // T
  Index keys = 0;     // S
  Index num_heads = 1;
  Index num_kv_heads = num_heads;
  Index head_dim = 0;
  Index value_head_dim = head_dim;
};

}  // namespace heed
