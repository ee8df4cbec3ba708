// A call's optional tensors on the imitated device.
#pragma once

#include "cuda/test_device.hpp"
#include "heed/cuda/kernels/attention.hpp"
#include "heed/ops/attention.hpp"

namespace test {

// Copies of what options show in the host's memory; log_sum_exp and weights are the caller's to set.
template <class T>
class OptionsOnDevice {
 public:
  using A = heed::accumulator_t<T>;
  using Options = heed::AttentionOptions<T, TestDevice::space_type>;

  OptionsOnDevice(const TestDevice& device, const heed::AttentionOptions<T>& options) {
    options_.scale = options.scale;
    options_.softcap = options.softcap;
    options_.causal = options.causal;
    options_.window = options.window;
    options_.dropout = options.dropout;
    options_.dropout_seed = options.dropout_seed;
    copy_scores(device, options.mask, mask_, options_.mask);
    copy_scores(device, options.bias, bias_, options_.bias);
    copy_list(device, options.alibi_slopes, slopes_, options_.alibi_slopes);
    copy_list(device, options.sinks, sinks_, options_.sinks);
    copy_list(device, options.key_lengths, lengths_, options_.key_lengths);
    copy_list(device, options.query_offsets, offsets_, options_.query_offsets);
  }
  Options& operator*() { return options_; }
  Options* operator->() { return &options_; }

 private:
  template <class M>
  static void copy_scores(const TestDevice& device, const heed::ScoreView<M>& from, DeviceTensor<M, 4>& copy,
                          heed::ScoreView<M, TestDevice::space_type>& to) {
    if (!from.present()) return;
    const Index extents[] = {from.extent(0), from.extent(1), from.extent(2), from.extent(3)};
    const Index strides[] = {from.stride(0), from.stride(1), from.stride(2), from.stride(3)};
    copy = DeviceTensor<M, 4>(device, heed::View<const M, 4>(from.row(0, 0, 0), extents, strides));
    to = copy;
  }
  template <class M>
  static void copy_list(const TestDevice& device, const heed::View<const M, 1>& from, DeviceTensor<M, 1>& copy,
                        DeviceView<const M, 1>& to) {
    if (!from.present()) return;
    copy = DeviceTensor<M, 1>(device, from);
    to = copy;
  }

  DeviceTensor<bool, 4> mask_;
  DeviceTensor<A, 4> bias_;
  DeviceTensor<A, 1> slopes_, sinks_;
  DeviceTensor<std::int64_t, 1> lengths_, offsets_;
  Options options_;
};

}  // namespace test
