// Speeds of heed's kernels on a CUDA device, and a graph that is replayed. JSON to the file given; a table to stdout.
//
//   heed_cuda_check results.json [quick]
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "heed/cuda.hpp"

namespace {

using heed::Index;
template <class T, int Rank>
using DeviceTensor = heed::Tensor<T, Rank, heed::Cuda::space_type>;

struct Result {
  std::string name;
  double milliseconds;
  double rate;  // of the unit
  const char* unit;
};
std::vector<Result> results;

void check(cudaError_t status) {
  heed::CudaRuntime::check(status, "measuring", 1, "kernel");
}

// The median of 20 runs, after 3.
template <class F>
double median_ms(const heed::Cuda& cuda, F&& run) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 23; ++i) {
    check(cudaEventRecord(begin, cuda.runtime().stream()));
    run();
    check(cudaEventRecord(end, cuda.runtime().stream()));
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 3) times.push_back(ms);
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void note(const std::string& name, double ms, double amount, const char* unit) {
  const double scale = std::string(unit) == "GB/s" ? 1e-6 : 1e-9;
  results.push_back({name, ms, amount / ms * scale, unit});
  std::printf("%-48s %9.3f ms %9.1f %s\n", name.c_str(), ms, results.back().rate, unit);
  std::fflush(stdout);
}

template <class T, int Rank>
DeviceTensor<T, Rank> random_on(const heed::Cuda& cuda, const Index (&extents)[Rank], std::uint64_t seed) {
  // One row repeated is as good as noise for time, and is made quickly.
  heed::Tensor<T, Rank> host(extents);
  heed::Tensor<T, 1> row({Index{4096}});
  heed::fill_normal(row, seed, 0, 0, 1);
  for (Index i = 0; i < host.size(); ++i) host.data()[i] = row.data()[i % 4096];
  return DeviceTensor<T, Rank>(cuda, host.view());
}

template <class T>
void measure_attention(const heed::Cuda& cuda, Index dims, Index tokens, bool causal) {
  const Index batch = std::max<Index>(1, 16384 / tokens);
  const Index heads = 2048 / dims;
  const auto query = random_on<T>(cuda, {batch, tokens, heads, dims}, 1);
  const auto key = random_on<T>(cuda, {batch, tokens, heads, dims}, 2);
  const auto value = random_on<T>(cuda, {batch, tokens, heads, dims}, 3);
  DeviceTensor<T, 4> out(cuda, {batch, tokens, heads, dims});
  auto workspace = cuda.make_workspace(heed::ops::attention_workspace_size<T>(
      cuda, {.batch = batch, .queries = tokens, .keys = tokens, .num_heads = heads, .head_dim = dims}));
  heed::AttentionOptions<T, heed::Cuda::space_type> options;
  if (causal) options.causal = heed::Causal::top_left;
  const double ms = median_ms(cuda, [&] { heed::ops::attention(cuda, query, key, value, out, options, workspace); });
  const double size = static_cast<double>(tokens);
  const double flops = 4.0 * static_cast<double>(batch * heads * dims) * size * size * (causal ? 0.5 : 1);
  note(std::string("attention ") + heed::scalar_name<T>() + " D " + std::to_string(dims) + " S " +
           std::to_string(tokens) + (causal ? " causal" : " full"),
       ms, flops, "TFLOP/s");
}

template <class T>
void measure_decode(const heed::Cuda& cuda, Index batch, Index keys) {
  const heed::KvCacheLayout layout{.num_kv_heads = 8, .head_dim = 128};
  heed::DeviceKvCache<T, heed::Cuda> cache(cuda, layout, batch, keys);
  {
    const auto filled = random_on<T>(cuda, {batch, keys, Index{8}, Index{128}}, 1);
    cache.append(cuda, filled, filled);
  }
  const auto query = random_on<T>(cuda, {batch, Index{1}, Index{32}, Index{128}}, 2);
  DeviceTensor<T, 4> out(cuda, {batch, Index{1}, Index{32}, Index{128}});
  auto workspace = cuda.make_workspace(heed::ops::attention_workspace_size<T>(
      cuda, {.batch = batch, .queries = 1, .keys = keys, .num_heads = 32, .num_kv_heads = 8, .head_dim = 128}));
  const double ms = median_ms(cuda, [&] {
    heed::ops::attention(cuda, query, cache.key_values(), out, {.causal = heed::Causal::bottom_right}, workspace);
  });
  note(std::string("decode ") + heed::scalar_name<T>() + " batch " + std::to_string(batch) + " keys " +
           std::to_string(keys) + ", 32 over 8 heads",
       ms, static_cast<double>(2 * batch * keys * 8 * 128) * sizeof(T), "GB/s");
}

template <class T>
void measure_linear(const heed::Cuda& cuda, Index rows, Index out_features, Index in_features) {
  const auto x = random_on<T>(cuda, {rows, in_features}, 1);
  const auto weight = random_on<T>(cuda, {out_features, in_features}, 2);
  const auto bias = random_on<T>(cuda, {out_features}, 3);
  DeviceTensor<T, 2> out(cuda, {rows, out_features});
  const double ms = median_ms(cuda, [&] { heed::ops::linear(cuda, x, weight, bias, out); });
  note(std::string("linear ") + heed::scalar_name<T>() + " " + std::to_string(rows) + " x " +
           std::to_string(out_features) + " x " + std::to_string(in_features),
       ms, 2.0 * static_cast<double>(rows) * static_cast<double>(out_features) * static_cast<double>(in_features),
       "TFLOP/s");
}

// A segment's retrieval and update: what Infini-attention does beside its local attention.
void measure_memory(const heed::Cuda& cuda, heed::MemoryUpdate rule, const char* name) {
  const Index batch = 1, tokens = 2048, heads = 32, kv_heads = 8, dims = 128;
  const auto query = random_on<float>(cuda, {batch, tokens, heads, dims}, 1);
  const auto key = random_on<float>(cuda, {batch, tokens, kv_heads, dims}, 2);
  const auto value = random_on<float>(cuda, {batch, tokens, kv_heads, dims}, 3);
  DeviceTensor<float, 4> memory(cuda, {batch, kv_heads, dims, dims});
  DeviceTensor<float, 3> normalizer(cuda, {batch, kv_heads, dims});
  DeviceTensor<float, 4> out(cuda, {batch, tokens, heads, dims});
  auto workspace = cuda.make_workspace(0);
  const double ms = median_ms(cuda, [&] {
    heed::ops::memory_retrieve(cuda, query, memory, normalizer, out, workspace);
    heed::ops::memory_update(cuda, key, value, memory, normalizer, workspace, {.rule = rule});
  });
  note(std::string("memory, ") + name + ", a segment of 2048", ms,
       2.0 * static_cast<double>(tokens * (heads + 2 * kv_heads) * dims * dims), "TFLOP/s");
}

// A captured step of decoding: does it give what the step gave when it was asked for?
bool check_graph(const heed::Cuda& cuda) {
  const auto query = random_on<float>(cuda, {Index{1}, Index{1}, Index{8}, Index{64}}, 1);
  const auto keys = random_on<float>(cuda, {Index{1}, Index{1}, Index{2}, Index{64}}, 2);
  DeviceTensor<float, 4> eager(cuda, {1, 1, 8, 64});
  DeviceTensor<float, 4> replayed(cuda, {1, 1, 8, 64});
  heed::DeviceKvCache<float, heed::Cuda> cache(cuda, {.num_kv_heads = 2, .head_dim = 64}, 1, 1024);
  auto workspace = cuda.make_workspace(heed::ops::attention_workspace_size<float>(
      cuda, {.queries = 1, .keys = 1024, .num_heads = 8, .num_kv_heads = 2, .head_dim = 64}));
  const auto step = [&](DeviceTensor<float, 4>& out) {
    cache.append(cuda, keys, keys);
    heed::ops::attention(cuda, query, cache.key_values(), out, {.causal = heed::Causal::bottom_right}, workspace);
  };
  for (int i = 0; i < 5; ++i) step(eager);
  cache.truncate(cuda, 0);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamBeginCapture(cuda.runtime().stream(), cudaStreamCaptureModeThreadLocal));
  step(replayed);
  check(cudaStreamEndCapture(cuda.runtime().stream(), &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 5; ++i) check(cudaGraphLaunch(executable, cuda.runtime().stream()));
  const auto a = cuda.to_host(eager);
  const auto b = cuda.to_host(replayed);
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  return std::equal(a.data(), a.data() + a.size(), b.data());
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no CUDA device");
    return 77;
  }
  if (argc < 2) {
    std::puts("usage: heed_cuda_check results.json [quick]");
    return 2;
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, sm_%d%d, %d multiprocessors\n", properties.name, properties.major, properties.minor,
              properties.multiProcessorCount);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const heed::Cuda cuda(stream);
  const bool graph = check_graph(cuda);
  std::printf("%s a graph replayed five times equals five steps\n", graph ? "ok  " : "FAIL");
  const bool quick = argc > 2;
  for (const Index tokens : {512, 2048, 8192, 16384}) {
    for (const Index dims : {64, 128}) {
      for (const bool causal : {false, true}) {
        if (quick && tokens > 512) continue;
        measure_attention<heed::bfloat16>(cuda, dims, tokens, causal);
        measure_attention<heed::float16>(cuda, dims, tokens, causal);
        if (tokens <= 8192) measure_attention<float>(cuda, dims, tokens, causal);
      }
    }
  }
  for (const Index keys : {1024, 8192, 65536}) {
    if (quick && keys > 1024) continue;
    measure_decode<heed::bfloat16>(cuda, 1, keys);
    measure_decode<heed::bfloat16>(cuda, 16, keys);
  }
  for (const Index rows : {1, 16, 512, 8192}) {
    if (quick && rows > 16) continue;
    measure_linear<heed::bfloat16>(cuda, rows, 4096, 4096);
    measure_linear<float>(cuda, rows, 4096, 4096);
  }
  measure_memory(cuda, heed::MemoryUpdate::linear, "linear");
  measure_memory(cuda, heed::MemoryUpdate::delta, "delta");

  std::FILE* file = std::fopen(argv[1], "w");
  if (file == nullptr) return 2;
  std::fprintf(file, "{\"device\": \"%s\", \"graph\": %s, \"results\": [", properties.name, graph ? "true" : "false");
  const char* comma = "";
  for (const Result& result : results) {
    std::fprintf(file, "%s\n  {\"name\": \"%s\", \"ms\": %.6g, \"rate\": %.6g, \"unit\": \"%s\"}", comma,
                 result.name.c_str(), result.milliseconds, result.rate, result.unit);
    comma = ",";
  }
  std::fprintf(file, "\n]}\n");
  std::fclose(file);
  return graph ? 0 : 1;
}
