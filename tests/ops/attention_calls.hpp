// ops::attention on a backend of any type, so that a test's body is compiled once and not once a backend.
#pragma once

#include "heed/ops/attention.hpp"
#include "support/backends.hpp"

namespace test {

// Everything of one scalar type and modifier goes through here.
template <class T, class Modifier>
HEED_NOINLINE void attention_on(AnyBackend backend, const heed::View<const T, 4>& query,
                                const heed::View<const T, 4>& key, const heed::View<const T, 4>& value,
                                const heed::View<T, 4>& out, const heed::AttentionOptions<T>& options,
                                heed::Workspace& workspace, const Modifier& modifier) {
  backend.visit([&](const auto& b) { heed::ops::attention(b, query, key, value, out, options, workspace, modifier); });
}

template <class T>
HEED_NOINLINE std::size_t attention_workspace_size(AnyBackend backend, const heed::AttentionExtents& extents) {
  std::size_t bytes = 0;
  backend.visit([&](const auto& b) { bytes = heed::ops::attention_workspace_size<T>(b, extents); });
  return bytes;
}

// The door's overloads, with a workspace of exactly the size asked for.
template <class Out, class Modifier = heed::NoModifier>
void attention(AnyBackend backend, heed::View<const heed::scalar_t<Out>, 4> query,
               heed::View<const heed::scalar_t<Out>, 4> key, heed::View<const heed::scalar_t<Out>, 4> value, Out&& out,
               const heed::AttentionOptions<heed::scalar_t<Out>>& options = {}, const Modifier& modifier = {}) {
  using T = heed::scalar_t<Out>;
  heed::Workspace workspace(
      attention_workspace_size<T>(backend, {query.extent(0), query.extent(1), key.extent(1), query.extent(2),
                                            key.extent(2), query.extent(3), value.extent(3)}));
  attention_on<T>(backend, query, key, value, heed::output_view(out), options, workspace, modifier);
}

template <class Query, class Modifier = heed::NoModifier>
heed::Tensor<heed::scalar_t<Query>, 4> attention(AnyBackend backend, const Query& query,
                                                 heed::View<const heed::scalar_t<Query>, 4> key,
                                                 heed::View<const heed::scalar_t<Query>, 4> value,
                                                 const heed::AttentionOptions<heed::scalar_t<Query>>& options = {},
                                                 const Modifier& modifier = {}) {
  using T = heed::scalar_t<Query>;
  const heed::View<const T, 4> q = query;
  heed::Tensor<T, 4> out({q.extent(0), q.extent(1), q.extent(2), value.extent(3)});
  attention(backend, q, key, value, out, options, modifier);
  return out;
}

template <class T, class Modifier = heed::NoModifier>
HEED_NOINLINE void attention_varlen(AnyBackend backend, const heed::Tensor<T, 3>& query, const heed::Tensor<T, 3>& key,
                                    const heed::Tensor<T, 3>& value, const heed::Tensor<std::int64_t, 1>& cu_seqlens_q,
                                    const heed::Tensor<std::int64_t, 1>& cu_seqlens_k, heed::Tensor<T, 3>& out,
                                    heed::View<heed::accumulator_t<T>, 2> log_sum_exp = {},
                                    const heed::AttentionOptions<T>& options = {}, const Modifier& modifier = {}) {
  backend.visit([&](const auto& b) {
    heed::ops::attention_varlen(b, query, key, value, cu_seqlens_q, cu_seqlens_k, out, log_sum_exp, options, modifier);
  });
}

// Calls check(AnyBackend) with Simd, Cpu on one thread and Cpu on three.
template <class F>
void for_each_fast_any_backend(F&& check) {
  for_each_fast_backend([&](const auto& backend) { check(AnyBackend(backend)); });
}

}  // namespace test
