// Query, key, value and output projections: what all attention layers share.
//
// The three input projections are one packed weight, so a call reads x once; its output row holds the query heads, then
// the key heads, then the value heads, and a head is a strided view of that row: nothing is transposed or copied.
#pragma once

#include "heed/core/heads.hpp"
#include "heed/core/workspace.hpp"
#include "heed/layers/linear.hpp"

namespace heed {

// The weights of an attention layer's projections, wherever they lie. E hidden size, H query heads, K kv heads, D
// head_dim, Dv value_head_dim.
template <Scalar T>
struct ProjectionWeightsView {
  LinearWeightsView<T> query = {};   // [H · D, E]
  LinearWeightsView<T> key = {};     // [K · D, E]
  LinearWeightsView<T> value = {};   // [K · Dv, E]
  LinearWeightsView<T> output = {};  // [E, H · Dv]
};

// What the projections are called in a file.
struct ProjectionNames {
  const char* query = "q_proj";
  const char* key = "k_proj";
  const char* value = "v_proj";
  const char* output = "o_proj";
};
// Hugging Face's BertAttention.
inline constexpr ProjectionNames bert_projections{"self.query", "self.key", "self.value", "output.dense"};
// The Python code that heed grew out of.
inline constexpr ProjectionNames seed_projections{"Q", "K", "V", "dense"};

// How a file's single weight for queries, keys and values orders its rows.
enum class PackedOrder {
  query_key_value,  // all query heads, all key heads, all value heads
  per_kv_head,      // for each kv head: its H / K query heads, its key head, its value head
};

}  // namespace heed

namespace heed::inline HEED_ABI::impl {

template <class T, int Rank>
Tensor<T, Rank> unpack_rows(View<const T, Rank> packed, Index blocks, Index stride, Index first, Index rows) {
  Index extents[Rank];
  for (int axis = 0; axis < Rank; ++axis) extents[axis] = packed.extent(axis);
  extents[0] = blocks * rows;
  Tensor<T, Rank> part(extents);
  for (Index row = 0; row < blocks * rows; ++row) {
    const Index from = row / rows * stride + first + row % rows;
    if constexpr (Rank == 1) {
      part(row) = packed(from);
    } else {
      for (Index i = 0; i < extents[1]; ++i) part(row, i) = packed(from, i);
    }
  }
  return part;
}

// One projection out of a packed weight: `rows` rows from `first` on, in each of `blocks` blocks of `stride` rows.
template <class T>
HEED_NOINLINE LinearWeights<T> unpack_projection(const LinearWeightsView<T>& packed, Index blocks, Index stride,
                                                 Index first, Index rows) {
  LinearWeights<T> part;
  part.weight = unpack_rows(packed.weight, blocks, stride, first, rows);
  if (packed.bias.present()) part.bias = unpack_rows(packed.bias, blocks, stride, first, rows);
  return part;
}

}  // namespace heed::inline HEED_ABI::impl

namespace heed {

// The same, owned.
template <Scalar T>
struct ProjectionWeights {
  LinearWeights<T> query = {};   // [H · D, E]
  LinearWeights<T> key = {};     // [K · D, E]
  LinearWeights<T> value = {};   // [K · Dv, E]
  LinearWeights<T> output = {};  // [E, H · Dv]

  HEED_INLINE operator ProjectionWeightsView<T>() const noexcept { return {query, key, value, output}; }

  // Reads prefix.q_proj.weight, prefix.q_proj.bias (optional), prefix.k_proj.weight and so on; `names` for files that
  // call them otherwise. Allocates the result. Errors: the source's (FormatError).
  template <class Source>
  HEED_INLINE static ProjectionWeights from_file(const Source& source, std::string_view prefix,
                                                 const ProjectionNames& names = {}) {
    const PrefixedSource<Source> part(source, prefix);
    return {LinearWeights<T>::from_file(part, names.query), LinearWeights<T>::from_file(part, names.key),
            LinearWeights<T>::from_file(part, names.value), LinearWeights<T>::from_file(part, names.output)};
  }

  // Uniform numbers in ±1/√(in features) for a layout whose sizes are all given. Uses streams 0 to 7 of the seed.
  // Allocates the result. Errors: ShapeError, OptionError.
  HEED_INLINE static ProjectionWeights random(std::uint64_t seed, Index hidden_size, const HeadLayout& layout,
                                              bool bias = false) {
    raise_if(check_layout("ProjectionWeights::random", layout));
    const Index query = layout.num_heads * layout.head_dim;
    const Index key = layout.num_kv_heads * layout.head_dim;
    const Index value = layout.num_kv_heads * layout.value_head_dim;
    const Index context = layout.num_heads * layout.value_head_dim;
    return {LinearWeights<T>::random(seed, query, hidden_size, bias, 0),
            LinearWeights<T>::random(seed, key, hidden_size, bias, 2),
            LinearWeights<T>::random(seed, value, hidden_size, bias, 4),
            LinearWeights<T>::random(seed, hidden_size, context, bias, 6)};
  }

  // Cuts a weight that holds queries, keys and values: rows of widths H · D, K · D and K · Dv, which are not three
  // equal parts unless H = K and D = Dv.
  //
  //   packed  [H · D + K · (D + Dv), E], bias [H · D + K · (D + Dv)] or absent
  //   output  [E, H · Dv], bias [E] or absent
  //   layout  every size given
  //
  // Copies. Allocates the result. Errors: ShapeError, OptionError.
  HEED_INLINE static ProjectionWeights from_packed(const LinearWeightsView<T>& packed,
                                                   const LinearWeightsView<T>& output, const HeadLayout& layout,
                                                   PackedOrder order = PackedOrder::query_key_value) {
    const char* door = "ProjectionWeights::from_packed";
    raise_if(check_layout(door, layout));
    const Index query_rows = layout.num_heads * layout.head_dim;
    const Index key_rows = layout.num_kv_heads * layout.head_dim;
    const Index value_rows = layout.num_kv_heads * layout.value_head_dim;
    const Index rows = query_rows + key_rows + value_rows;
    constexpr const char* width = "num_heads * head_dim + num_kv_heads * (head_dim + value_head_dim)";
    raise_if(check_input(door, "packed.weight", packed.weight, {{width, rows}, {"hidden size", any}}));
    if (packed.bias.present()) raise_if(check_input(door, "packed.bias", packed.bias, {{width, rows}}));

    const Index blocks = order == PackedOrder::per_kv_head ? layout.num_kv_heads : 1;
    const Index query = query_rows / blocks;  // of each block
    const Index key = key_rows / blocks;
    const Index value = value_rows / blocks;
    const Index all = rows / blocks;
    return {impl::unpack_projection(packed, blocks, all, 0, query),
            impl::unpack_projection(packed, blocks, all, query, key),
            impl::unpack_projection(packed, blocks, all, query + key, value),
            {Tensor<T, 2>(output.weight), Tensor<T, 1>(output.bias)}};
  }
};

// A call's projected heads: views of one buffer.
template <Scalar T, class Space = Host>
struct ProjectedHeads {
  View<T, 4, Space> query = {};  // [B, T, H, D]
  View<T, 4, Space> key = {};    // [B, T, K, D]
  View<T, 4, Space> value = {};  // [B, T, K, Dv]
};

}  // namespace heed

namespace heed::inline HEED_ABI {

// What is wrong with the weights of an attention layer of these heads (every size given). The hidden size is what the
// query projection reads.
template <Scalar T>
[[nodiscard]] Problem check_projection_weights(const char* door, const ProjectionWeightsView<T>& weights,
                                               const HeadLayout& layout) noexcept {
  const Index hidden_size = weights.query.weight.extent(1);
  const Axis hidden{"hidden size", hidden_size};
  const Axis query{"num_heads * head_dim", layout.num_heads * layout.head_dim};
  const Axis key{"num_kv_heads * head_dim", layout.num_kv_heads * layout.head_dim};
  const Axis value{"num_kv_heads * value_head_dim", layout.num_kv_heads * layout.value_head_dim};
  const Axis heads{"num_heads * value_head_dim", layout.num_heads * layout.value_head_dim};
  const auto check_bias = [&](const char* name, const View<const T, 1>& bias, const Axis& axis) noexcept {
    return bias.present() ? check_input(door, name, bias, {axis}) : Problem();
  };
  return first_problem(check_input(door, "query.weight", weights.query.weight, {query, hidden}),
                       check_bias("query.bias", weights.query.bias, query),
                       check_input(door, "key.weight", weights.key.weight, {key, hidden}),
                       check_bias("key.bias", weights.key.bias, key),
                       check_input(door, "value.weight", weights.value.weight, {value, hidden}),
                       check_bias("value.bias", weights.value.bias, value),
                       check_input(door, "output.weight", weights.output.weight, {hidden, heads}),
                       check_bias("output.bias", weights.output.bias, hidden));
}

// The projections of an attention layer: x -> query, key and value heads, and heads -> output.
//
//   View<T, 3> buffer = projections.take(workspace, batch, length);   // also while measuring
//   projections.project(backend, x, buffer);
//   auto [query, key, value] = projections.split(buffer);             // [B, T, H, D], [B, T, K, D], [B, T, K, Dv]
//   …
//   projections.output(backend, context, out);                        // [B, T, H, Dv] -> [B, T, E]
//
// A part that layers are made of: arguments are the layer's to check. Immutable, shared by copies and by threads.
// Numerics: as ops::linear, each output feature independent of the others, so equal to three products.
template <Scalar T, Backend B = Cpu>
class Projections {
 public:
  // Copies the weights, packed for B. `door` names the layer in errors. Allocates. Errors: ShapeError.
  Projections(const char* door, const ProjectionWeightsView<T>& weights, const HeadLayout& layout,
              const B& backend = B())
      : layout_(layout),
        input_(joined(door, weights, layout), backend),
        output_(LinearWeightsView<T>(weights.output), backend) {}

  Index hidden_size() const noexcept { return input_.in_features(); }
  const HeadLayout& layout() const noexcept { return layout_; }
  bool has_output_bias() const noexcept { return output_.has_bias(); }
  // Of q, k and v: one has a bias if any has, of zeros where it had none.
  bool has_input_bias() const noexcept { return input_.has_bias(); }
  Index weight_bytes() const noexcept { return input_.weight_bytes() + output_.weight_bytes(); }

  // Room for the projected heads of a call: [B, T, H · D + K · (D + Dv)].
  ViewOn<B, T, 3> take(WorkspaceOn<B>& workspace, Index batch, Index length) const noexcept {
    return workspace.template take<T>({batch, length, input_.out_features()});
  }

  // x [B, T, E] -> buffer.
  void project(const B& backend, ViewOn<B, const T, 3> x, ViewOn<B, T, 3> buffer) const noexcept(HostBackend<B>) {
    input_.forward(backend, x, buffer);
  }

  // The heads in a buffer.
  ProjectedHeads<T, space_of<B>> split(ViewOn<B, T, 3> buffer) const noexcept {
    const HeadLayout& l = layout_;
    const Index query = l.num_heads * l.head_dim;
    const Index key = l.num_kv_heads * l.head_dim;
    const Index value = l.num_kv_heads * l.value_head_dim;
    return {buffer.slice(2, 0, query).split_last(l.num_heads, l.head_dim),
            buffer.slice(2, query, key).split_last(l.num_kv_heads, l.head_dim),
            buffer.slice(2, query + key, value).split_last(l.num_kv_heads, l.value_head_dim)};
  }

  // context [B, T, H, Dv], a token's heads next to each other -> out [B, T, E].
  void output(const B& backend, ViewOn<B, const T, 4> context, ViewOn<B, T, 3> out) const noexcept(HostBackend<B>) {
    output_.forward(backend, context.merge_last(), out);
  }

 private:
  // The three input projections as one, checked.
  static LinearWeights<T> joined(const char* door, const ProjectionWeightsView<T>& weights, const HeadLayout& layout) {
    raise_if(check_projection_weights(door, weights, layout));
    const LinearWeightsView<T> parts[] = {weights.query, weights.key, weights.value};
    Index rows = 0;
    bool has_bias = false;
    for (const auto& part : parts) {
      rows += part.weight.extent(0);
      has_bias = has_bias || part.bias.present();
    }
    LinearWeights<T> all;
    all.weight = Tensor<T, 2>({rows, weights.query.weight.extent(1)});
    if (has_bias) all.bias = Tensor<T, 1>({rows});
    Index row = 0;
    for (const auto& part : parts) {
      for (Index r = 0; r < part.weight.extent(0); ++r, ++row) {
        for (Index i = 0; i < part.weight.extent(1); ++i) all.weight(row, i) = part.weight(r, i);
        if (part.bias.present()) all.bias(row) = part.bias(r);
      }
    }
    return all;
  }

  HeadLayout layout_;
  Linear<T, B> input_;
  Linear<T, B> output_;
};

}  // namespace heed::inline HEED_ABI
