// Multi-head self-attention on a CUDA device: the layer of the other examples, with another backend.
#include <cmath>
#include <cstdio>

#include "heed/cuda.hpp"

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no CUDA device");
    return 77;
  }
  cudaStream_t stream = nullptr;
  heed::CudaRuntime::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making", 1, "stream");
  {
    const heed::Cuda cuda(stream);
    constexpr heed::HeadLayout heads{.num_heads = 4};
    const auto weights = heed::ProjectionWeights<float>::random(1, 64, {.num_heads = 4, .head_dim = 16});
    heed::Tensor<float, 3> x({2, 10, 64});
    heed::fill_normal(x, 1, 0, 0, 1);

    const heed::MultiHeadSelfAttention<float, heads, heed::Cuda> attention(weights, {}, heads, cuda);
    const heed::Tensor<float, 3, heed::Cuda::space_type> on_device(cuda, x.view());
    const auto out = cuda.to_host(attention.forward(cuda, on_device));  // waits

    const heed::MultiHeadSelfAttention<float, heads, heed::Reference> reference(weights);
    const auto want = reference.forward(heed::Reference(), x);
    float largest = 0;
    for (heed::Index i = 0; i < out.size(); ++i)
      largest = std::fmax(largest, std::fabs(out.data()[i] - want.data()[i]));
    std::printf("the device and Reference differ by %s 1e-5\n", largest < 1e-5F ? "less than" : "more than");
    if (!(largest < 1e-5F)) return 1;
  }  // tensors go before their stream
  cudaStreamDestroy(stream);
  return 0;
}
