// Attention's cases on backends of the host and on the imitated device, to and from which everything is copied.
#pragma once

#include "conformance/run.hpp"
#include "cuda/attention_on_device.hpp"
#include "heed/ops/attention.hpp"

namespace conformance {

// dispatch(), with the device among the backends, in float.
template <class Run>
void dispatch_attention(const Setup& setup, Run&& run) {
  if (setup.backend != "device_host") return dispatch(setup, run);
  if (setup.scalar != "float") throw CaseSkipped("a device's is float");
  run.template operator()<float>(test::make_device());
}

// A device's tensor to a view of the same shape, if there is one.
template <class T, int Rank>
void copy_back(const test::TestDevice& device, const test::DeviceTensor<T, Rank>& from, const heed::View<T, Rank>& to) {
  if (to.present()) device.copy(from, to);
}
template <class T, int Rank>
test::DeviceTensor<T, Rank> room_for(const test::TestDevice& device, const heed::View<T, Rank>& like) {
  heed::Index extents[Rank];
  for (int axis = 0; axis < Rank; ++axis) extents[axis] = like.extent(axis);
  return like.present() ? test::DeviceTensor<T, Rank>(device, extents) : test::DeviceTensor<T, Rank>();
}

template <class B, class T>
heed::Tensor<T, 4> attend(const B& backend, const heed::Tensor<T, 4>& query, const heed::Tensor<T, 4>& key,
                          const heed::Tensor<T, 4>& value, const heed::AttentionOptions<T>& options) {
  if constexpr (heed::HostBackend<B>) {
    return heed::ops::attention(backend, query, key, value, options);
  } else {
    test::OptionsOnDevice<T> there(backend, options);
    auto log_sum_exp = room_for(backend, options.log_sum_exp);
    auto weights = room_for(backend, options.weights);
    there->log_sum_exp = log_sum_exp;
    there->weights = weights;
    test::DeviceTensor<T, 4> out(backend, {query.extent(0), query.extent(1), query.extent(2), value.extent(3)});
    heed::ops::attention(backend, test::on_device(backend, query), test::on_device(backend, key),
                         test::on_device(backend, value), out, *there);
    copy_back(backend, log_sum_exp, options.log_sum_exp);
    copy_back(backend, weights, options.weights);
    return backend.to_host(out);
  }
}

template <class B, class T>
void attend_varlen(const B& backend, const heed::Tensor<T, 3>& query, const heed::Tensor<T, 3>& key,
                   const heed::Tensor<T, 3>& value, const heed::Tensor<std::int64_t, 1>& queries,
                   const heed::Tensor<std::int64_t, 1>& keys, heed::Tensor<T, 3>& out,
                   heed::Tensor<heed::accumulator_t<T>, 2>& log_sum_exp, const heed::AttentionOptions<T>& options) {
  if constexpr (heed::HostBackend<B>) {
    heed::ops::attention_varlen(backend, query, key, value, queries, keys, out, log_sum_exp, options);
  } else {
    test::OptionsOnDevice<T> there(backend, options);
    auto device_out = test::on_device(backend, out);
    auto device_lse = test::on_device(backend, log_sum_exp);
    heed::ops::attention_varlen(backend, test::on_device(backend, query), test::on_device(backend, key),
                                test::on_device(backend, value), test::on_device(backend, queries),
                                test::on_device(backend, keys), device_out, device_lse, *there);
    backend.copy(device_out, out);
    backend.copy(device_lse, log_sum_exp);
    backend.sync();
  }
}

}  // namespace conformance
