// What one writes by hand around a matrix product: Eigen's, and OpenBLAS's, whose library Python names (Debian's, or the
// newer one inside numpy's package). Tensors are float, axes as in heed_jobs.cpp.
#include <dlfcn.h>

// As in heed/core/simd.hpp: g++ 12 mistakes AVX-512's deliberately undefined operands.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <Eigen/Core>
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#pragma GCC diagnostic pop
#endif
#include <cmath>
#include <stdexcept>
#include <string>

#include "job.hpp"

namespace peers {
namespace {

using Index = std::int64_t;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
using Map = Eigen::Map<Matrix, 0, Eigen::OuterStride<>>;

// C [m, n] = A [m, k] · B, B [k, n] or, transposed, [n, k]; rows are so many elements apart.
struct EigenProduct {
  int threads;

  void operator()(bool transposed, Index m, Index n, Index k, const float* a, Index a_stride, const float* b,
                  Index b_stride, float* c, Index c_stride) const {
    Eigen::setNbThreads(threads);
    const ConstMap left(a, m, k, Eigen::OuterStride<>(a_stride));
    Map out(c, m, n, Eigen::OuterStride<>(c_stride));
    if (transposed) {
      out.noalias() = left * ConstMap(b, n, k, Eigen::OuterStride<>(b_stride)).transpose();
    } else {
      out.noalias() = left * ConstMap(b, k, n, Eigen::OuterStride<>(b_stride));
    }
  }
};

// Int: the library's integers. numpy's names have a prefix and, for 64-bit integers, a suffix.
template <class Int>
class BlasProduct {
 public:
  BlasProduct(void* library, const std::string& prefix, const std::string& suffix, int threads) : threads_(threads) {
    find(library, prefix + "cblas_sgemm" + suffix, gemm_);
    find(library, prefix + "openblas_set_num_threads" + suffix, set_threads_);
  }

  void operator()(bool transposed, Index m, Index n, Index k, const float* a, Index a_stride, const float* b,
                  Index b_stride, float* c, Index c_stride) const {
    set_threads_(threads_);
    constexpr int row_major = 101;
    constexpr int as_it_is = 111;
    constexpr int transpose = 112;
    const auto size = [](Index i) { return static_cast<Int>(i); };
    gemm_(row_major, as_it_is, transposed ? transpose : as_it_is, size(m), size(n), size(k), 1, a, size(a_stride), b,
          size(b_stride), 0, c, size(c_stride));
  }

 private:
  template <class F>
  static void find(void* library, const std::string& name, F*& function) {
    function = reinterpret_cast<F*>(dlsym(library, name.c_str()));
    if (function == nullptr) throw std::runtime_error("no " + name + " in OpenBLAS");
  }

  int threads_;
  void (*gemm_)(int, int, int, Int, Int, Int, float, const float*, Int, const float*, Int, float, float*,
                Int) = nullptr;
  void (*set_threads_)(int) = nullptr;
};

template <class Product>
class Linear final : public Job {
 public:
  Linear(Product product, Index m, Index n, Index k, const float* x, const float* weight, const float* bias, float* out)
      : product_(product), m_(m), n_(n), k_(k), x_(x), weight_(weight), bias_(bias), out_(out) {}
  void run() override {
    product_(true, m_, n_, k_, x_, k_, weight_, k_, out_, n_);
    Eigen::Map<Matrix>(out_, m_, n_).rowwise() += Eigen::Map<const Eigen::RowVectorXf>(bias_, n_);
  }

 private:
  Product product_;
  Index m_, n_, k_;
  const float* x_;
  const float* weight_;
  const float* bias_;
  float* out_;
};

// softmax(q·kᵀ / √D) · v, for 256 queries at a time, so that the scores stay in the cache where that is possible.
template <class Product>
class Attention final : public Job {
 public:
  Attention(Product product, Index batch, Index tokens, Index heads, Index head_dim, bool causal, const float* query,
            const float* key, const float* value, float* out)
      : product_(product),
        batch_(batch),
        tokens_(tokens),
        heads_(heads),
        head_dim_(head_dim),
        causal_(causal),
        query_(query),
        key_(key),
        value_(value),
        out_(out),
        scores_(block, tokens) {}

  void run() override {
    const Index row = heads_ * head_dim_;  // from a token to the next
    for (Index b = 0; b < batch_; ++b) {
      for (Index h = 0; h < heads_; ++h) {
        const Index head = b * tokens_ * row + h * head_dim_;
        for (Index t = 0; t < tokens_; t += block) {
          const Index rows = tokens_ - t < block ? tokens_ - t : block;
          const Index keys = causal_ ? t + rows : tokens_;
          product_(true, rows, keys, head_dim_, query_ + head + t * row, row, key_ + head, row, scores_.data(),
                   tokens_);
          for (Index i = 0; i < rows; ++i) softmax(i, causal_ ? t + i + 1 : tokens_, keys);
          product_(false, rows, head_dim_, keys, scores_.data(), tokens_, value_ + head, row, out_ + head + t * row,
                   row);
        }
      }
    }
  }

 private:
  static constexpr Index block = 256;

  // Of the first `seen` scores; what comes after, of `keys`, is nobody's.
  void softmax(Index i, Index seen, Index keys) {
    auto row = scores_.row(i).array();
    auto scores = row.head(seen);
    const float scale = 1 / std::sqrt(static_cast<float>(head_dim_));
    const float largest = scores.maxCoeff();
    scores = ((scores - largest) * scale).exp();
    scores *= 1 / scores.sum();
    row.segment(seen, keys - seen).setZero();
  }

  Product product_;
  Index batch_, tokens_, heads_, head_dim_;
  bool causal_;
  const float* query_;
  const float* key_;
  const float* value_;
  float* out_;
  Matrix scores_;
};

// f(product) with the one of that name: "eigen", or the path of an OpenBLAS.
template <class F>
Job* with_product(const char* name, int threads, F&& f) {
  const std::string product(name);
  if (product == "eigen") return f(EigenProduct{threads});
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  if (dlsym(library, "scipy_cblas_sgemm64_") != nullptr) {
    return f(BlasProduct<std::int64_t>(library, "scipy_", "64_", threads));
  }
  return f(BlasProduct<int>(library, "", "", threads));
}

}  // namespace
}  // namespace peers

HEED_PEERS_EXPORT peers::Job* product_linear(const char* product, int threads, std::int64_t m, std::int64_t n,
                                             std::int64_t k, const float* x, const float* weight, const float* bias,
                                             float* out) {
  return peers::guarded([&]() -> peers::Job* {
    return peers::with_product(product, threads, [&](auto p) -> peers::Job* {
      return new peers::Linear<decltype(p)>(p, m, n, k, x, weight, bias, out);
    });
  });
}

HEED_PEERS_EXPORT peers::Job* product_attention(const char* product, int threads, std::int64_t batch,
                                                std::int64_t tokens, std::int64_t heads, std::int64_t head_dim,
                                                int causal, const float* query, const float* key, const float* value,
                                                float* out) {
  return peers::guarded([&]() -> peers::Job* {
    return peers::with_product(product, threads, [&](auto p) -> peers::Job* {
      return new peers::Attention<decltype(p)>(p, batch, tokens, heads, head_dim, causal != 0, query, key, value, out);
    });
  });
}

// "Eigen 3.4.0", or what the OpenBLAS says of itself, the processor it chose its kernels for at the end.
HEED_PEERS_EXPORT const char* product_about(const char* product) {
  static std::string about;
  about = "Eigen " + std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
          std::to_string(EIGEN_MINOR_VERSION);
  if (std::string(product) == "eigen") return about.c_str();
  about = "none";
  void* library = dlopen(product, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return about.c_str();
  for (const char* name : {"scipy_openblas_get_config64_", "openblas_get_config"}) {
    if (const auto config = reinterpret_cast<char* (*)()>(dlsym(library, name))) about = config();
  }
  return about.c_str();
}
