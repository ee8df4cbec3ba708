// Which backend's kernel an operation runs, asked of the compiler: for each operation of the table in docs/backends.md
// its hooks with their arguments, and whether a backend has overloads of its own of them.
#pragma once

#include <concepts>
#include <heed/backend/compiled.hpp>
#include <heed/heed.hpp>
#if __has_include(<heed/backend/eigen_map.hpp>)
#include <heed/backend/eigen_map.hpp>
#endif

namespace heed_docs {

using heed::accumulator_t;
using heed::Index;
using heed::View;

// True if one of the functions `hook` names takes exactly `const B&` and the other arguments: an overload that B
// inherits takes a reference to its parent.
#define HEED_DOCS_OWN(hook, ...)                                        \
  requires {                                                            \
    static_cast<void (*)(const B&, __VA_ARGS__) noexcept>(&heed::hook); \
  }

// An operation with one hook.
#define HEED_DOCS_OPERATION(name, hook, ...)                      \
  struct name {                                                   \
    template <class B, class T, class A = accumulator_t<T>>       \
    static constexpr bool own = HEED_DOCS_OWN(hook, __VA_ARGS__); \
  }

struct linear {
  template <class B, class T>
  static constexpr bool own = HEED_DOCS_OWN(linear_kernel<T>, View<const T, 2>, View<const T, 2>, View<const T, 1>,
                                            View<T, 2>) &&
                              HEED_DOCS_OWN(linear_kernel<T>, View<const T, 2>, const heed::WeightPanels<T>&,
                                            View<const T, 1>, View<T, 2>);
};
struct pack_weight {
  template <class B, class T>
  static constexpr bool own = requires {
    static_cast<Index (*)(const B&, Index) noexcept>(&heed::weight_panel_kernel<T>);
  };
};
HEED_DOCS_OPERATION(embedding, embedding_kernel<T>, View<const std::int64_t, 1>, View<const T, 2>, View<T, 2>);
struct softmax {
  template <class B, class T>
  static constexpr bool own = HEED_DOCS_OWN(softmax_kernel<T>, View<const T, 2>, View<T, 2>) &&
                              HEED_DOCS_OWN(softmax_columns_kernel<T>, View<const T, 3>, View<T, 3>);
};
struct log_sum_exp {
  template <class B, class T>
  static constexpr bool own = HEED_DOCS_OWN(log_sum_exp_kernel<T>, View<const T, 2>, View<T, 1>) &&
                              HEED_DOCS_OWN(log_sum_exp_columns_kernel<T>, View<const T, 3>, View<T, 2>);
};
HEED_DOCS_OPERATION(rms_norm, rms_norm_kernel<T>, View<const T, 2>, View<const T, 1>, heed::RmsNormOptions, View<T, 2>);
HEED_DOCS_OPERATION(layer_norm, layer_norm_kernel<T>, View<const T, 2>, View<const T, 1>, View<const T, 1>,
                    heed::LayerNormOptions, View<T, 2>);
HEED_DOCS_OPERATION(silu, silu_kernel<T>, View<const T, 2>, View<T, 2>);
HEED_DOCS_OPERATION(gelu, gelu_kernel<T>, View<const T, 2>, heed::GeluForm, View<T, 2>);
HEED_DOCS_OPERATION(rotary_tables, rotary_tables_kernel<A>, View<const std::int64_t, 2>, View<const double, 1>, double,
                    View<A, 3>, View<A, 3>);
HEED_DOCS_OPERATION(rotary_embedding, rotary_embedding_kernel<T>, View<const T, 4>, View<const A, 3>, View<const A, 3>,
                    heed::RopeLayout, View<T, 4>);
HEED_DOCS_OPERATION(rotate_half, rotate_half_kernel<T>, View<const T, 2>, View<T, 2>);
HEED_DOCS_OPERATION(repeat_kv, repeat_kv_kernel<T>, View<const T, 4>, View<T, 4>);
struct attention {
  using Modifier = heed::NoModifier;
  template <class B, class T>
  static constexpr bool own = requires {
    static_cast<void (*)(const B&, const heed::AttentionArguments<T>&, const Modifier&, heed::Workspace&) noexcept>(
        &heed::attention_kernel<T, Modifier>);
  };
};
using attention_varlen = attention;  // the same hook
HEED_DOCS_OPERATION(memory_retrieve, memory_retrieve_kernel<T>, View<const T, 4>, View<const A, 4>, View<const A, 3>,
                    View<T, 4>, View<A, 3>, A, View<A, 2>);
HEED_DOCS_OPERATION(memory_update, memory_update_kernel<T>, View<const T, 4>, View<const T, 4>, View<A, 4>, View<A, 3>,
                    const heed::MemoryUpdateOptions&, View<A, 2>);
HEED_DOCS_OPERATION(gated_mix, gated_mix_kernel<T>, View<const T, 4>, View<const T, 4>, View<const A, 1>, View<T, 4>,
                    heed::EmptyMemory, View<const A, 3>);
HEED_DOCS_OPERATION(linear_attention, linear_attention_kernel<T>, View<const T, 4>, View<const T, 4>, View<const T, 4>,
                    View<A, 4>, View<T, 4>, const heed::LinearAttentionOptions<T>&, View<A, 2>);
struct tensor_scatter {
  template <class B, class T>
  static constexpr bool own = requires {
    static_cast<void (*)(const B&, View<const T, 4>, View<T, 4>, View<const std::int64_t, 1>, int) noexcept>(
        &heed::tensor_scatter_kernel<T, 4>);
  };
};

// In how many of the scalars a backend has a kernel of its own.
template <class Operation, class B>
inline constexpr int own_scalars =
    int{Operation::template own<B, float>} + int{Operation::template own<B, double>} +
    int{Operation::template own<B, heed::bfloat16>} + int{Operation::template own<B, heed::float16>};

// A backend between B and its ancestor Owner, or B itself, has no kernel of its own.
template <class Operation, class B, class Owner, class Between>
inline constexpr bool passes = std::same_as<Between, Owner> || !std::derived_from<B, Between> ||
                               !std::derived_from<Between, Owner> || own_scalars<Operation, Between> == 0;

// What runs on B is Owner's kernel, in every scalar.
template <class Operation, class B, class Owner>
inline constexpr bool runs = std::derived_from<B, Owner>&& own_scalars<Operation, Owner> == 4 &&
                             passes<Operation, B, Owner, B>&& passes<Operation, B, Owner, heed::Simd>;

}  // namespace heed_docs

// One cell of the table: `backend` runs `owner`'s kernel.
#define HEED_DOCS_CELL(operation, backend, owner)                                  \
  static_assert(heed_docs::runs<heed_docs::operation, heed::backend, heed::owner>, \
                "the table says that " #operation " on " #backend " runs " #owner "'s kernel; it does not")
