// Simd kernels of ops::memory_retrieve and ops::memory_update on the one micro-kernel.
//
// Bits: an element of φ(Q) M is one fma chain in ascending d, an element of φ(K)ᵀ V one chain in ascending token that
// begins at zero and is added to M once a segment (which also keeps a memory of very many tokens from standing still:
// token by token, z would stop at 2²⁴ in float). A result's bits depend on its row's own tokens only.
#pragma once

#include <limits>

#include "heed/backend/simd.hpp"
#include "heed/kernels/reference/compressive_memory.hpp"
#include "heed/kernels/simd/gemm.hpp"

namespace heed::inline HEED_ABI {

namespace impl {

// Rows of φ(Q) or φ(K) that are formed at a time; they and the memory stay in the level-2 cache.
template <class A>
inline constexpr Index memory_rows = 8 * simd::tile_rows<A>;

// φ in vectors. exp_nonpositive() sees every lane and only the ones ≤ 0 (and NaN) are kept.
template <class A>
HEED_INLINE simd::Vec<A> phi(simd::Vec<A> x) noexcept {
  return simd::select<A>(x > simd::broadcast<A>(0), x + simd::broadcast<A>(1), simd::exp_nonpositive<A>(x));
}

// to [n] = φ(from [n]).
template <class T>
HEED_INLINE void phi_row(const T* from, Index n, accumulator_t<T>* to) noexcept {
  using A = accumulator_t<T>;
  for (Index d = 0; d < n; d += simd::width<A>) {
    simd::store_partial(to + d, n - d, impl::phi<A>(simd::load_partial(from + d, n - d)));
  }
}

// row [n] · z [n], lanes first: the order depends on n alone.
template <class A>
HEED_INLINE A dot(const A* row, const A* z, Index n) noexcept {
  simd::Vec<A> sum = simd::broadcast<A>(0);
  for (Index d = 0; d < n; d += simd::width<A>) {
    sum = simd::fma(simd::load_partial(row + d, n - d), simd::load_partial(z + d, n - d), sum);
  }
  return simd::reduce_add<A>(sum);
}

// to [n] += from [n].
template <class A>
HEED_INLINE void add_row(const A* from, Index n, A* to) noexcept {
  for (Index d = 0; d < n; d += simd::width<A>) {
    simd::store_partial(to + d, n - d, simd::load_partial(to + d, n - d) + simd::load_partial(from + d, n - d));
  }
}

// 1 / divisor, or 0 where the reciprocal would overflow and a division is needed.
template <class A>
HEED_INLINE A reciprocal(A divisor) noexcept {
  return divisor < (std::numeric_limits<A>::min)() && divisor > -(std::numeric_limits<A>::min)() ? A(0) : 1 / divisor;
}

// row[i] / divisor.
template <class A>
HEED_INLINE simd::Vec<A> divided(simd::Vec<A> row, A inverse, A divisor) noexcept {
  return inverse != 0 ? row * simd::broadcast(inverse) : simd::divide<A>(row, simd::broadcast(divisor));
}

// M [D, Dv] as the right operand: where it lies, or, if its columns do not fill whole panels, a padded copy.
template <class Product, class A>
HEED_INLINE simd::Panels<A> memory_panels(View<const A, 2> memory, A* copy) noexcept {
  const Index columns = memory.extent(1);
  const Index panel = Product::template panel_width<A>(columns);
  if (columns % panel == 0) return {memory.data_handle(), panel, panel, memory.stride(0)};
  const Index padded = simd::padded_columns<A>(columns);
  for (Index d = 0; d < memory.extent(0); ++d) {
    for (Index j = 0; j < padded; ++j) copy[d * padded + j] = j < columns ? memory(d, j) : 0;
  }
  return {copy, panel, panel, padded};
}

}  // namespace impl

// A padded M, φ(Q) of a block, φ(Q) M of a block.
template <class T>
Index memory_retrieve_scratch_kernel(const Simd&, Index head_dim, Index value_head_dim) noexcept {
  using A = accumulator_t<T>;
  return head_dim * simd::padded_columns<A>(value_head_dim) + impl::memory_rows<A> * (head_dim + value_head_dim + 1);
}

namespace impl {

// Product is simd::PanelProduct, or what stands for it.
template <class Product, class T>
void memory_retrieve(View<const T, 4> query, View<const accumulator_t<T>, 4> memory,
                     View<const accumulator_t<T>, 3> normalizer, View<T, 4> out, View<accumulator_t<T>, 3> denominator,
                     accumulator_t<T> epsilon, View<accumulator_t<T>, 2> scratch) noexcept {
  using A = accumulator_t<T>;
  const Index head_dim = memory.extent(2);
  const Index columns = memory.extent(3);
  const Index group = query.extent(2) / memory.extent(1);
  A* const copy = scratch.data_handle();
  A* const features = copy + head_dim * simd::padded_columns<A>(columns);
  A* const answers = features + memory_rows<A> * head_dim;
  A* const divisors = answers + memory_rows<A> * columns;
  const Index rows = out.extent(1) * group;  // a kv head's queries: row r is head r % group of token r / group
  for (Index b = 0; b < out.extent(0); ++b) {
    for (Index k = 0; k < memory.extent(1); ++k) {
      const View<const A, 1> z = normalizer[b][k];
      const bool empty = is_empty_memory(z);
      const auto panels = empty ? simd::Panels<A>{} : memory_panels<Product, A>(memory[b][k], copy);
      for (Index first = 0; first < rows; first += memory_rows<A>) {
        const Index count = rows - first < memory_rows<A> ? rows - first : memory_rows<A>;
        for (Index r = 0; r < count && !empty; ++r) {
          A* const row = features + r * head_dim;
          phi_row(query.pointer(b, (first + r) / group, k * group + (first + r) % group), head_dim, row);
          divisors[r] = dot(row, z.data_handle(), head_dim) + epsilon;
        }
        if (!empty) {
          Product::multiply(count, columns, head_dim, simd::Rows<A>{features, head_dim, 1}, panels, answers, columns,
                            simd::Start::zero);
        }
        for (Index r = 0; r < count; ++r) {
          const Index t = (first + r) / group;
          const Index h = k * group + (first + r) % group;
          const A divisor = empty ? 0 : divisors[r];
          if (denominator.present()) denominator(b, t, h) = divisor;
          T* const to = out.pointer(b, t, h);
          const A* const from = answers + r * columns;
          const A inverse = divisor == 0 ? 0 : reciprocal(divisor);
          for (Index j = 0; j < columns; j += simd::width<A>) {
            const auto answer = divisor == 0 ? simd::broadcast<A>(0)
                                             : divided<A>(simd::load_partial(from + j, columns - j), inverse, divisor);
            simd::store_partial(to + j, columns - j, answer);
          }
        }
      }
    }
  }
}

}  // namespace impl

template <class T>
void memory_retrieve_kernel(const Simd&, View<const T, 4> query, View<const accumulator_t<T>, 4> memory,
                            View<const accumulator_t<T>, 3> normalizer, View<T, 4> out,
                            View<accumulator_t<T>, 3> denominator, accumulator_t<T> epsilon,
                            View<accumulator_t<T>, 2> scratch) noexcept {
  impl::memory_retrieve<simd::PanelProduct, T>(query, memory, normalizer, out, denominator, epsilon, scratch);
}

// The change of M, Σ φ(K), a padded M, φ(K) of a block, what is written of a block.
template <class T>
Index memory_update_scratch_kernel(const Simd&, Index head_dim, Index value_head_dim) noexcept {
  using A = accumulator_t<T>;
  const Index padded = simd::padded_columns<A>(value_head_dim);
  return head_dim * (value_head_dim + 1 + padded) + impl::memory_rows<A> * (head_dim + padded);
}

namespace impl {

// mass [D] = Σ φ(key) over a row's tokens; key [S, D].
template <class T>
void memory_mass(View<const T, 2> key, accumulator_t<T>* mass) noexcept {
  using A = accumulator_t<T>;
  for (Index d = 0; d < key.extent(1); d += simd::width<A>) {
    const Index lanes = key.extent(1) - d;
    simd::Vec<A> sum = simd::broadcast<A>(0);
    for (Index t = 0; t < key.extent(0); ++t) sum = sum + phi<A>(simd::load_partial(key.pointer(t) + d, lanes));
    simd::store_partial(mass + d, lanes, sum);
  }
}

// One kv head of one row: key [S, D] and value [S, columns], S ≥ 1, enter memory [D, columns]. normalizer [D] is read.
// Leaves Σ φ(key) in `mass`.
template <class Product, class T>
void memory_update_head(View<const T, 2> key, View<const T, 2> value, View<accumulator_t<T>, 2> memory,
                        View<const accumulator_t<T>, 1> normalizer, MemoryUpdate rule, accumulator_t<T>* scratch,
                        accumulator_t<T>* mass) noexcept {
  using A = accumulator_t<T>;
  const Index tokens = key.extent(0);
  const Index head_dim = memory.extent(0);
  const Index columns = memory.extent(1);
  const Index panel = Product::template panel_width<A>(columns);
  const Index padded = simd::padded_columns<A>(columns);
  A* const change = scratch;
  A* const copy = change + head_dim * columns;
  A* const features = copy + head_dim * padded;
  A* const written = features + memory_rows<A> * head_dim;

  A share = 0;
  if (rule != MemoryUpdate::linear) {
    if (rule == MemoryUpdate::safe_delta) memory_mass(key, mass);
    share = subtracted_share<A>(rule, normalizer, mass);
  }
  const auto known = share != 0 ? memory_panels<Product, A>(memory, copy) : simd::Panels<A>{};
  const bool in_place = std::is_same_v<T, A> && share == 0 && columns % panel == 0;  // V itself is the right operand
  for (Index d = 0; d < head_dim; ++d) mass[d] = 0;

  for (Index first = 0; first < tokens; first += memory_rows<A>) {
    const Index count = tokens - first < memory_rows<A> ? tokens - first : memory_rows<A>;
    for (Index t = 0; t < count; ++t) {
      phi_row(key.pointer(first + t), head_dim, features + t * head_dim);
      add_row(features + t * head_dim, head_dim, mass);
    }
    const simd::Rows<A> rows{features, head_dim, 1};
    if (share != 0) Product::multiply(count, columns, head_dim, rows, known, written, padded, simd::Start::zero);
    for (Index t = 0; t < count && !in_place; ++t) {
      const A divisor = share != 0 ? dot(features + t * head_dim, normalizer.data_handle(), head_dim) : A(0);
      const A inverse = divisor == 0 ? 0 : reciprocal(divisor);
      const T* const from = value.pointer(first + t);
      A* const to = written + t * padded;
      for (Index j = 0; j < columns; j += simd::width<A>) {
        const simd::Vec<A> v = simd::load_partial(from + j, columns - j);
        const simd::Vec<A> answer =
            divisor == 0 ? v
                         : simd::fma(simd::broadcast<A>(-share),
                                     divided<A>(simd::load_partial(to + j, columns - j), inverse, divisor), v);
        simd::store(to + j, answer);
      }
      for (Index j = columns + simd::width<A> - 1 - (columns - 1) % simd::width<A>; j < padded; ++j) to[j] = 0;
    }
    const simd::Rows<A> transposed{features, 1, head_dim};
    const auto start = first == 0 ? simd::Start::zero : simd::Start::resume;
    if constexpr (std::is_same_v<T, A>) {
      if (in_place) {
        const simd::Panels<A> right{value.pointer(first), panel, panel, value.stride(0)};
        Product::multiply(head_dim, columns, count, transposed, right, change, columns, start);
        continue;
      }
    }
    const simd::Panels<A> right{written, panel, panel, padded};
    Product::multiply(head_dim, columns, count, transposed, right, change, columns, start);
  }
  for (Index d = 0; d < head_dim; ++d) add_row(change + d * columns, columns, memory.pointer(d));
}

// The same rows of a [B, S, K, D] tensor as a matrix [S, D].
template <class T>
HEED_INLINE View<const T, 2> head_rows(const View<const T, 4>& tensor, Index b, Index k, Index rows) noexcept {
  return View<const T, 2>(tensor.pointer(b, 0, k), {rows, tensor.extent(3)}, {tensor.stride(1), Index{1}});
}

// Product is simd::PanelProduct, or what stands for it.
template <class Product, class T>
void memory_update(View<const T, 4> key, View<const T, 4> value, View<accumulator_t<T>, 4> memory,
                   View<accumulator_t<T>, 3> normalizer, const MemoryUpdateOptions& options,
                   View<accumulator_t<T>, 2> scratch) noexcept {
  using A = accumulator_t<T>;
  const Index head_dim = memory.extent(2);
  A* const mass = scratch.data_handle();
  for (Index b = 0; b < memory.extent(0); ++b) {
    const Index tokens = tokens_of_row(options.key_lengths, b, key.extent(1));
    for (Index k = 0; k < memory.extent(1) && tokens > 0; ++k) {
      const View<A, 1> z = normalizer[b][k];
      memory_update_head<Product, T>(head_rows(key, b, k, tokens), head_rows(value, b, k, tokens), memory[b][k], z,
                                     options.rule, mass + head_dim, mass);
      add_row(mass, head_dim, z.data_handle());
    }
  }
}

}  // namespace impl

template <class T>
void memory_update_kernel(const Simd&, View<const T, 4> key, View<const T, 4> value, View<accumulator_t<T>, 4> memory,
                          View<accumulator_t<T>, 3> normalizer, const MemoryUpdateOptions& options,
                          View<accumulator_t<T>, 2> scratch) noexcept {
  impl::memory_update<simd::PanelProduct, T>(key, value, memory, normalizer, options, scratch);
}

}  // namespace heed::inline HEED_ABI
