// What can be wrong with a call of ops::attention; each check is noexcept, allocates nothing, and names the axes.
#pragma once

#include <cmath>

#include "heed/backend/backend.hpp"
#include "heed/core/shape.hpp"
#include "heed/ops/attention_options.hpp"
#include "heed/ops/key_values.hpp"

namespace heed::inline HEED_ABI {

// A call's arguments for checks and for kernels, which see another space than the caller: to(view) gives the view there.
template <class Space, class T, class From, class To>
AttentionOptions<T, Space> options_in(const AttentionOptions<T, From>& options, const To& to) noexcept {
  using A = accumulator_t<T>;
  AttentionOptions<T, Space> there;
  there.scale = options.scale;
  there.softcap = options.softcap;
  there.causal = options.causal;
  there.window = options.window;
  there.mask = ScoreView<bool, Space>(options.mask);
  there.bias = ScoreView<A, Space>(options.bias);
  there.alibi_slopes = to(options.alibi_slopes);
  there.sinks = to(options.sinks);
  there.key_lengths = to(options.key_lengths);
  there.query_offsets = to(options.query_offsets);
  there.dropout = options.dropout;
  there.dropout_seed = options.dropout_seed;
  there.log_sum_exp = to(options.log_sum_exp);
  there.weights = to(options.weights);
  return there;
}
template <class Space, class T, class From, class To>
KeyValues<T, Space> key_values_in(const KeyValues<T, From>& keys, const To& to) noexcept {
  return {{to(keys.key.elements), to(keys.key.codes), to(keys.key.scales)},
          {to(keys.value.elements), to(keys.value.codes), to(keys.value.scales)},
          to(keys.lengths),
          to(keys.first_tokens),
          to(keys.pages),
          keys.window};
}

template <class T>
const AttentionOptions<T>& for_check(const AttentionOptions<T>& options) noexcept {
  return options;
}
template <class T, class Space>
AttentionOptions<T> for_check(const AttentionOptions<T, Space>& options) noexcept {
  return options_in<Host>(options, [](const auto& view) noexcept { return for_check(view); });
}
template <class T>
const KeyValues<T>& for_check(const KeyValues<T>& keys) noexcept {
  return keys;
}
template <class T, class Space>
KeyValues<T> for_check(const KeyValues<T, Space>& keys) noexcept {
  return key_values_in<Host>(keys, [](const auto& view) noexcept { return for_check(view); });
}

namespace impl {

// A row-major [rows, …] tensor as a batch of one.
template <class T, int Rank, class Space>
View<T, Rank + 1, Space> as_batch(const View<T, Rank, Space>& view) noexcept {
  Index extents[Rank + 1] = {1};
  Index strides[Rank + 1] = {0};
  for (int axis = 0; axis < Rank; ++axis) {
    extents[axis + 1] = view.extent(axis);
    strides[axis + 1] = view.stride(axis);
  }
  return {view.data_handle(), extents, strides};
}

template <class T, class Space>
AttentionExtents extents_of(const View<const T, 4, Space>& query, const View<const T, 4, Space>& key,
                            const View<const T, 4, Space>& value) noexcept {
  return {query.extent(0), query.extent(1), key.extent(1),  query.extent(2),
          key.extent(2),   query.extent(3), value.extent(3)};
}

// A window that holds at most `width` tokens up to the query itself; width 0: no limit.
inline Window narrower(Window window, Index width) noexcept {
  if (width > 0 && (window.left < 0 || window.left > width - 1)) window.left = width - 1;
  return window;
}

// Of a call with keys in a cache.
template <class T, class Space>
AttentionExtents extents_of(const View<const T, 4, Space>& query, const KeyValues<T, Space>& keys) noexcept {
  return {query.extent(0), query.extent(1),     keys.most_keys(keys.longest()), query.extent(2), keys.key.extent(2),
          query.extent(3), keys.value.extent(3)};
}

// The longest sequence that cumulative lengths describe.
inline Index longest(const View<const std::int64_t, 1>& cu_seqlens) noexcept {
  Index most = 0;
  for (Index i = 0; i + 1 < cu_seqlens.extent(0); ++i) {
    const auto length = static_cast<Index>(cu_seqlens(i + 1) - cu_seqlens(i));
    if (length > most) most = length;
  }
  return most;
}

// A device's cumulative lengths are not for the host to read: there one sequence may have all tokens.
template <class T, class Space>
AttentionExtents extents_of_varlen(const View<const T, 3, Space>& query, const View<const T, 3, Space>& key,
                                   const View<const T, 3, Space>& value,
                                   const View<const std::int64_t, 1, Space>& cu_seqlens_q,
                                   const View<const std::int64_t, 1, Space>& cu_seqlens_k) noexcept {
  AttentionExtents extents = extents_of(as_batch(query), as_batch(key), as_batch(value));
  extents.batch = cu_seqlens_q.extent(0) - 1;
  if constexpr (std::is_same_v<Space, Host>) {
    extents.queries = longest(cu_seqlens_q);
    extents.keys = longest(cu_seqlens_k);
  }
  return extents;
}

// Whether a check may read numbers in tensors: not in those of a device, whose kernels cut lengths off at what there is.
enum class Numbers { read, unread };
template <class B>
inline constexpr Numbers numbers_of = HostBackend<B> ? Numbers::read : Numbers::unread;

inline Problem bad_option(const char* door, const char* option, const char* expected, double got) noexcept {
  return problem_at(ErrorKind::option, door, option).append(expected).append(", got ").append_number(got);
}

// A mask or bias must broadcast to [B, H, T, S]; its key axis is S or 1.
template <class M>
Problem check_score_view(const char* door, const char* name, const ScoreView<M>& scores,
                         const AttentionExtents& extents) noexcept {
  if (!scores.present()) return {};
  const Index wanted[] = {extents.batch, extents.num_heads, extents.queries, extents.keys};
  bool fits = true;
  for (int axis = 0; axis < 4; ++axis) fits = fits && (scores.extent(axis) == 1 || scores.extent(axis) == wanted[axis]);
  if (!fits) {
    Problem problem = problem_at(ErrorKind::shape, door, name);
    problem.append("expected a shape that broadcasts to [");
    for (int axis = 0; axis < 4; ++axis) problem.append(axis > 0 ? ", " : "").append(wanted[axis]);
    problem.append("] (batch, heads, queries, keys), got [");
    for (int axis = 4 - scores.rank(); axis < 4; ++axis)
      problem.append(axis > 4 - scores.rank() ? ", " : "").append(scores.extent(axis));
    return problem.append("]");
  }
  if (scores.extent(3) > 1 && scores.stride(3) != 1) {
    return problem_at(ErrorKind::shape, door, name)
        .append("the last axis must be contiguous (stride 1), got stride ")
        .append(scores.stride(3))
        .append(" on keys");
  }
  return {};
}

// A [count] option, if it is given.
template <class T>
Problem check_list(const char* door, const char* name, const View<T, 1>& list, const char* axis, Index count) noexcept {
  return list.present() ? check_input(door, name, list, {{axis, count}}) : Problem();
}

// Query heads that share kv heads evenly.
inline Problem check_group(const char* door, Index heads, Index kv_heads) noexcept {
  if (kv_heads > 0 ? heads % kv_heads == 0 : heads == 0) return {};
  return problem_at(ErrorKind::shape, door, "query")
      .append("its number of heads, ")
      .append(heads)
      .append(", is not a multiple of key's kv heads, ")
      .append(kv_heads);
}

// Sizes that hold for a batch and for packed sequences alike; `query` … `out` end in (heads, head dim).
template <class T, int Rank>
Problem check_heads(const char* door, const View<const T, Rank>& query, const View<const T, Rank>& key) noexcept {
  return check_group(door, query.extent(Rank - 2), key.extent(Rank - 2));
}

// Everything about the options but the outputs' shapes.
template <class T>
Problem check_attention_options(const char* door, const AttentionOptions<T>& options, const AttentionExtents& extents,
                                Numbers numbers = Numbers::read) noexcept {
  const auto scale = static_cast<double>(options.scale.value(extents.head_dim));
  const auto softcap = static_cast<double>(options.softcap);
  const auto dropout = static_cast<double>(options.dropout);
  const double infinity = HUGE_VAL;
  if (!(std::fabs(scale) < infinity)) return bad_option(door, "scale", "must be finite", scale);
  if (!(softcap >= 0 && softcap < infinity)) {
    return bad_option(door, "softcap", "must be positive and finite, or 0 for none", softcap);
  }
  if (!(dropout >= 0 && dropout < 1)) return bad_option(door, "dropout", "must be at least 0 and below 1", dropout);
  const struct {
    const char* name;
    Index value;
  } sides[] = {{"window.left", options.window.left}, {"window.right", options.window.right}};
  for (const auto& side : sides) {
    if (side.value < -1)
      return bad_option(door, side.name, "must be at least 0, or -1 for no limit", static_cast<double>(side.value));
  }
  Problem problem = check_score_view(door, "mask", options.mask, extents);
  if (!problem) problem = check_score_view(door, "bias", options.bias, extents);
  if (!problem) problem = check_list(door, "alibi_slopes", options.alibi_slopes, "heads", extents.num_heads);
  if (!problem) problem = check_list(door, "sinks", options.sinks, "heads", extents.num_heads);
  if (!problem) problem = check_list(door, "key_lengths", options.key_lengths, "batch", extents.batch);
  if (!problem) problem = check_list(door, "query_offsets", options.query_offsets, "batch", extents.batch);
  if (problem || numbers == Numbers::unread) return problem;

  for (Index b = 0; b < (options.key_lengths.present() ? extents.batch : 0); ++b) {
    const std::int64_t length = options.key_lengths(b);
    if (length >= 0 && length <= extents.keys) continue;
    return problem_at(ErrorKind::option, door, "key_lengths")
        .append("must be from 0 to ")
        .append(extents.keys)
        .append(", got ")
        .append(static_cast<Index>(length))
        .append(" for batch row ")
        .append(b);
  }
  constexpr std::int64_t farthest = std::int64_t{1} << 61;  // sums with window and key positions cannot overflow
  for (Index b = 0; b < (options.query_offsets.present() ? extents.batch : 0); ++b) {
    const std::int64_t offset = options.query_offsets(b);
    if (offset >= -farthest && offset <= farthest) continue;
    return problem_at(ErrorKind::option, door, "query_offsets")
        .append("must be within 2^61, got ")
        .append(static_cast<Index>(offset))
        .append(" for batch row ")
        .append(b);
  }
  return {};
}

// Cumulative lengths begin at 0, never fall, and end at the number of rows.
inline Problem check_cu_seqlens(const char* door, const char* name, const View<const std::int64_t, 1>& cu_seqlens,
                                Index count, Index total, Numbers numbers) noexcept {
  Problem problem = check_input(door, name, cu_seqlens, {{"sequences + 1", count}});
  if (problem) return problem;
  const auto fault = [&](const char* text, Index at) {
    return problem_at(ErrorKind::option, door, name)
        .append(text)
        .append(", got ")
        .append(static_cast<Index>(cu_seqlens(at)))
        .append(" at ")
        .append(at);
  };
  const Index last = cu_seqlens.extent(0) - 1;
  if (last < 0) return problem_at(ErrorKind::shape, door, name).append("must hold at least one element");
  if (numbers == Numbers::unread) return {};
  if (cu_seqlens(0) != 0) return fault("must begin with 0", 0);
  for (Index i = 1; i <= last; ++i) {
    if (cu_seqlens(i) < cu_seqlens(i - 1)) return fault("must not decrease", i);
  }
  if (cu_seqlens(last) == total) return {};
  return problem_at(ErrorKind::option, door, name)
      .append("must end with the number of rows, ")
      .append(total)
      .append(", got ")
      .append(static_cast<Index>(cu_seqlens(last)));
}

}  // namespace impl

namespace ops {

// What is wrong with the arguments of attention().
template <Scalar T>
[[nodiscard]] Problem check_attention(View<const T, 4> query, View<const T, 4> key, View<const T, 4> value,
                                      View<T, 4> out, const AttentionOptions<T>& options,
                                      impl::Numbers numbers = impl::Numbers::read) noexcept {
  const char* door = "attention";
  Problem problem =
      check_input(door, "query", query, {{"batch", any}, {"queries", any}, {"heads", any}, {"head dim", any}});
  const Index batch = query.extent(0);
  const Index queries = query.extent(1);
  const Index heads = query.extent(2);
  if (!problem) {
    problem = check_input(door, "key", key,
                          {{"batch", batch}, {"keys", any}, {"kv heads", any}, {"head dim", query.extent(3)}});
  }
  const Index keys = key.extent(1);
  if (!problem) {
    problem = check_input(door, "value", value,
                          {{"batch", batch}, {"keys", keys}, {"kv heads", key.extent(2)}, {"value head dim", any}});
  }
  if (!problem) problem = impl::check_heads(door, query, key);
  if (!problem) {
    problem =
        check_output(door, "out", out,
                     {{"batch", batch}, {"queries", queries}, {"heads", heads}, {"value head dim", value.extent(3)}});
  }
  if (!problem) problem = impl::check_attention_options(door, options, impl::extents_of(query, key, value), numbers);
  const auto& lse = options.log_sum_exp;
  const auto& weights = options.weights;
  if (!problem && lse.present()) {
    problem = check_output(door, "log_sum_exp", lse, {{"batch", batch}, {"heads", heads}, {"queries", queries}});
  }
  if (!problem && weights.present()) {
    problem = check_output(door, "weights", weights,
                           {{"batch", batch}, {"heads", heads}, {"queries", queries}, {"keys", keys}});
  }
  if (problem) return problem;
  return first_problem(check_disjoint(door, out, query, "query"), check_disjoint(door, out, key, "key"),
                       check_disjoint(door, out, value, "value"), check_disjoint(door, out, lse, "log_sum_exp"),
                       check_disjoint(door, out, weights, "weights"));
}

// The same for keys in a cache.
template <Scalar T>
[[nodiscard]] Problem check_attention(View<const T, 4> query, const KeyValues<T>& keys, View<T, 4> out,
                                      const AttentionOptions<T>& options,
                                      impl::Numbers numbers = impl::Numbers::read) noexcept {
  const char* door = "attention";
  const Axis batch{"batch", keys.lengths.extent(0)};
  const Axis queries{"queries", query.extent(1)};
  const Axis heads{"heads", query.extent(2)};
  Problem problem = first_problem(
      check_input(door, "query", query, {batch, {"queries", any}, {"heads", any}, {"head dim", keys.key.extent(3)}}),
      impl::check_group(door, heads.extent, keys.key.extent(2)),
      check_output(door, "out", out, {batch, queries, heads, {"value head dim", keys.value.extent(3)}}));
  if (!problem && options.key_lengths.present()) {
    problem = problem_at(ErrorKind::option, door, "key_lengths")
                  .append("must be absent: the cache knows how many keys each row has");
  }
  AttentionExtents extents{query.extent(0), query.extent(1),     0, query.extent(2), keys.key.extent(2),
                           query.extent(3), keys.value.extent(3)};
  if (numbers == impl::Numbers::read) {
    extents.keys = keys.longest();
  } else {
    extents.keys = keys.pages.present() ? keys.pages.extent(1) * keys.key.extent(1) : keys.key.extent(1);
  }
  if (!problem) problem = impl::check_attention_options(door, options, extents, numbers);
  const auto& lse = options.log_sum_exp;
  const auto& weights = options.weights;
  if (!problem && lse.present()) problem = check_output(door, "log_sum_exp", lse, {batch, heads, queries});
  if (!problem && weights.present()) {
    problem = check_output(door, "weights", weights, {batch, heads, queries, {"keys", extents.keys}});
  }
  if (problem) return problem;
  return first_problem(check_disjoint(door, out, query, "query"),
                       check_disjoint(door, out, keys.key.elements, "the cache's keys"),
                       check_disjoint(door, out, keys.value.elements, "the cache's values"),
                       check_disjoint(door, out, lse, "log_sum_exp"), check_disjoint(door, out, weights, "weights"));
}

// What is wrong with the arguments of attention_varlen().
template <Scalar T>
[[nodiscard]] Problem check_attention_varlen(View<const T, 3> query, View<const T, 3> key, View<const T, 3> value,
                                             View<const std::int64_t, 1> cu_seqlens_q,
                                             View<const std::int64_t, 1> cu_seqlens_k, View<T, 3> out,
                                             View<accumulator_t<T>, 2> log_sum_exp, const AttentionOptions<T>& options,
                                             impl::Numbers numbers = impl::Numbers::read) noexcept {
  const char* door = "attention_varlen";
  const Index queries = query.extent(0);
  const Index heads = query.extent(1);
  Problem problem = check_input(door, "query", query, {{"total queries", any}, {"heads", any}, {"head dim", any}});
  if (!problem) {
    problem = check_input(door, "key", key, {{"total keys", any}, {"kv heads", any}, {"head dim", query.extent(2)}});
  }
  if (!problem) {
    problem = check_input(door, "value", value,
                          {{"total keys", key.extent(0)}, {"kv heads", key.extent(1)}, {"value head dim", any}});
  }
  if (!problem) problem = impl::check_heads(door, query, key);
  if (!problem) {
    problem = check_output(door, "out", out,
                           {{"total queries", queries}, {"heads", heads}, {"value head dim", value.extent(2)}});
  }
  if (!problem) problem = impl::check_cu_seqlens(door, "cu_seqlens_q", cu_seqlens_q, any, queries, numbers);
  if (!problem) {
    problem =
        impl::check_cu_seqlens(door, "cu_seqlens_k", cu_seqlens_k, cu_seqlens_q.extent(0), key.extent(0), numbers);
  }
  if (!problem && log_sum_exp.present()) {
    problem = check_output(door, "log_sum_exp", log_sum_exp, {{"heads", heads}, {"total queries", queries}});
  }
  if (problem) return problem;
  const struct {
    const char* name;
    bool present;
  } padded[] = {{"mask", options.mask.present()},
                {"bias", options.bias.present()},
                {"key_lengths", options.key_lengths.present()},
                {"log_sum_exp", options.log_sum_exp.present()},
                {"weights", options.weights.present()}};
  for (const auto& option : padded) {
    if (option.present) {
      return problem_at(ErrorKind::option, door, option.name)
          .append("this option has the shape of a padded batch and is not for packed sequences");
    }
  }
  AttentionExtents extents = impl::extents_of(impl::as_batch(query), impl::as_batch(key), impl::as_batch(value));
  extents.batch = cu_seqlens_q.extent(0) - 1;
  if (numbers == impl::Numbers::read) {
    extents = impl::extents_of_varlen(query, key, value, cu_seqlens_q, cu_seqlens_k);
  }
  problem = impl::check_attention_options(door, options, extents, numbers);
  if (problem) return problem;
  return first_problem(check_disjoint(door, out, query, "query"), check_disjoint(door, out, key, "key"),
                       check_disjoint(door, out, value, "value"),
                       check_disjoint(door, out, log_sum_exp, "log_sum_exp"));
}

}  // namespace ops
}  // namespace heed::inline HEED_ABI
