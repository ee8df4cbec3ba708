// RotaryEmbedding: rotary position embedding (RoPE) as a layer: frequencies worked out once, used by any thread.
#pragma once

#include <cstdint>
#include <string>

#include "heed/core/workspace.hpp"
#include "heed/layers/describe.hpp"
#include "heed/ops/rotary_embedding.hpp"

namespace heed {

// A call's cosines and sines, shared by its queries and keys and by all their heads.
template <Scalar T>
struct RotaryTables {
  View<accumulator_t<T>, 3> cos = {};  // [B, T, pairs]
  View<accumulator_t<T>, 3> sin = {};  // [B, T, pairs]

  // Tables of one row for `batch` rows with the same positions.
  HEED_INLINE RotaryTables repeat(Index batch) const noexcept { return {repeat(cos, batch), repeat(sin, batch)}; }

 private:
  HEED_INLINE static View<accumulator_t<T>, 3> repeat(const View<accumulator_t<T>, 3>& table, Index batch) noexcept {
    const Index extents[] = {batch, table.extent(1), table.extent(2)};
    const Index strides[] = {0, table.stride(1), table.stride(2)};
    return {table.data_handle(), extents, strides};
  }
};

}  // namespace heed

namespace heed::inline HEED_ABI {

namespace impl {

inline const char* describe_scaling(RopeType type) noexcept {
  constexpr const char* texts[] = {"no scaling",       "linear scaling", "dynamic scaling",     "yarn scaling",
                                   "longrope scaling", "llama3 scaling", "proportional scaling"};
  return texts[static_cast<int>(type)];
}

}  // namespace impl

// Turns queries and keys by their positions.
//
//   const heed::RotaryEmbedding<float> rope(64, {.theta = 500000});        // head_dim 64
//   rope.forward(cpu, query, positions, query, workspace);                 // [B, T, heads, 64], [B, T]; in place
//   rope.forward(cpu, key, 1024, key, workspace);                          // token t of every row at position 1024 + t
//
// or, for layers, the tables once for queries and keys:
//
//   auto [cos, sin] = rope.take(workspace, batch, length);                 // also while measuring
//   rope.cos_sin(cpu, positions, cos, sin);
//   rope.rotate(cpu, query, cos, sin, query);
//   rope.rotate(cpu, key, cos, sin, key);
//
// Immutable: frequencies are made at construction, tables belong to the call, and no length is remembered between
// calls, so threads may share a layer. dynamic and longrope scaling go by the length of the whole sequence, cached
// tokens included; it is an argument of each call there and has no effect elsewhere. (Their cached keys keep the
// frequencies they were turned with.) Numerics: as ops::rotary_tables and ops::rotary_embedding.
template <Scalar T, Backend B = Cpu>
class RotaryEmbedding {
 public:
  using A = accumulator_t<T>;

  // For heads of head_dim dims. Allocates. Errors: ShapeError (a rotary_dim that is odd or larger than head_dim),
  // OptionError.
  explicit RotaryEmbedding(Index head_dim, const RopeOptions& options = {}) : head_dim_(head_dim), options_(options) {
    raise_if(check_rope("RotaryEmbedding", options, head_dim));
    short_ = inverse_frequencies(0);
    if (options.scaling.type == RopeType::longrope) long_ = inverse_frequencies(options.scaling.original_length() + 1);
    factor_ = heed::attention_factor(options.scaling);
  }

  Index head_dim() const noexcept { return head_dim_; }
  // Dims that turn, and their pairs.
  Index rotary_dim() const noexcept { return rope_dim(options_, head_dim_); }
  Index pairs() const noexcept { return rotary_dim() / 2; }
  RopeLayout layout() const noexcept { return options_.layout; }
  const RopeOptions& options() const noexcept { return options_; }
  // True if calls must say the sequence's length.
  bool needs_length() const noexcept { return options_.scaling.needs_length(); }
  // What cosines and sines are multiplied by.
  double attention_factor() const noexcept { return factor_; }
  // The frequencies for a length (0: not beyond the original one): a copy, [pairs]. Allocates.
  Tensor<double, 1> inverse_frequencies(Index length = 0) const {
    Tensor<double, 1> result({pairs()});
    heed::inverse_frequencies(options_, head_dim_, length, result);
    return result;
  }

  // Bytes that forward() takes; monotone in both.
  std::size_t workspace_size(Index batch, Index length) const noexcept {
    Workspace measuring = Workspace::measuring();
    measuring.take<std::int64_t>(length);
    take(measuring, batch, length);
    return measuring.size_needed();
  }

  // Room for a call's tables.
  RotaryTables<T> take(Workspace& workspace, Index batch, Index length) const noexcept {
    const Index extents[] = {batch, length, pairs()};
    const auto cos = workspace.take<A>(extents);
    return {cos, workspace.take<A>(extents)};
  }

  // What is wrong with the length given to a call.
  [[nodiscard]] Problem check_length(const char* door, Index length) const noexcept {
    if (!needs_length() || length > 0) return {};
    return problem_at(ErrorKind::option, door, "length")
        .append("dynamic and longrope scaling need the length of the whole sequence, got ")
        .append(length);
  }

  // The tables of tokens at these positions.
  //
  //   positions  [B, T]         any integer
  //   cos, sin   [B, T, pairs]  out
  //   length                    of the whole sequence, for dynamic and longrope
  //
  // Allocates nothing. Errors: ShapeError, OptionError.
  void cos_sin(const B& backend, View<const std::int64_t, 2> positions, View<A, 3> cos, View<A, 3> sin,
               Index length = 0) const {
    const char* door = "RotaryEmbedding::cos_sin";
    raise_if(
        first_problem(ops::check_rotary_tables(positions, short_.view(), cos, sin, door), check_length(door, length)));
    if (options_.scaling.type == RopeType::longrope && length > options_.scaling.original_length()) {
      ops::rotary_tables(backend, positions, long_.view(), factor_, cos, sin);
    } else if (options_.scaling.type == RopeType::dynamic && length > options_.scaling.max_position_embeddings) {
      constexpr Index block = 64;  // frequencies of this length, remembered nowhere
      double frequencies[block];
      for (Index first = 0; first < pairs(); first += block) {
        const Index count = pairs() - first < block ? pairs() - first : block;
        for (Index i = 0; i < count; ++i) {
          frequencies[i] = inverse_frequency(options_, head_dim_, first + i, length);
        }
        ops::rotary_tables(backend, positions, View<const double, 1>(frequencies, {count}), factor_,
                           cos.slice(2, first, count), sin.slice(2, first, count));
      }
    } else {
      ops::rotary_tables(backend, positions, short_.view(), factor_, cos, sin);
    }
  }

  // x turned by tables from cos_sin().
  //
  //   x, out    [B, T, heads, head_dim]  out may be x itself
  //   cos, sin  [B, T, pairs]
  //
  // Allocates nothing. Errors: ShapeError.
  void rotate(const B& backend, View<const T, 4> x, View<const A, 3> cos, View<const A, 3> sin, View<T, 4> out) const {
    ops::rotary_embedding(backend, x, cos, sin, layout(), out);
  }

  // What is wrong with the arguments of forward() but positions.
  [[nodiscard]] Problem check_forward(View<const T, 4> x, View<T, 4> out, const Workspace& workspace,
                                      Index length) const noexcept {
    const char* door = "RotaryEmbedding::forward";
    const Axis batch{"batch", x.extent(0)};
    const Axis tokens{"seq", x.extent(1)};
    const Axis heads{"heads", x.extent(2)};
    return first_problem(check_x(x), check_output(door, "out", out, {batch, tokens, heads, {"head dim", head_dim_}}),
                         check_in_place(door, out, x, "x"), check_length(door, length),
                         check_workspace(door, workspace, workspace_size(x.extent(0), x.extent(1))));
  }

  // out = x turned by positions.
  //
  //   x, out     [B, T, heads, head_dim]  out may be x itself (in place), must not overlap it otherwise
  //   positions  [B, T]                   any integer; padding has any
  //   workspace                           workspace_size(B, T) bytes
  //   length                              of the whole sequence, for dynamic and longrope
  //
  // Allocates nothing. Errors: ShapeError, WorkspaceError, OptionError.
  void forward(const B& backend, View<const T, 4> x, View<const std::int64_t, 2> positions, View<T, 4> out,
               Workspace& workspace, Index length = 0) const {
    const char* door = "RotaryEmbedding::forward";
    raise_if(first_problem(check_forward(x, out, workspace, length),
                           check_input(door, "positions", positions, {{"batch", x.extent(0)}, {"seq", x.extent(1)}})));
    if (out.empty()) return;
    const Workspace::Frame frame(workspace);
    const auto tables = take(workspace, x.extent(0), x.extent(1));
    cos_sin(backend, positions, tables.cos, tables.sin, length);
    rotate(backend, x, tables.cos, tables.sin, out);
  }

  // The same with token t of every row at position offset + t.
  void forward(const B& backend, View<const T, 4> x, std::int64_t offset, View<T, 4> out, Workspace& workspace,
               Index length = 0) const {
    raise_if(check_forward(x, out, workspace, length));
    if (out.empty()) return;
    const Workspace::Frame frame(workspace);
    const auto positions = workspace.take<std::int64_t>({Index{1}, x.extent(1)});
    for (Index t = 0; t < x.extent(1); ++t) positions(0, t) = offset + t;
    const auto row = take(workspace, 1, x.extent(1));
    cos_sin(backend, positions, row.cos, row.sin, length);
    const auto tables = row.repeat(x.extent(0));
    rotate(backend, x, tables.cos, tables.sin, out);
  }

  // Either of them into a new tensor; `positions` is [B, T] or an offset. Allocates the result and scratch.
  template <class Positions>
  Tensor<T, 4> forward(const B& backend, View<const T, 4> x, const Positions& positions, Index length = 0) const {
    raise_if(check_x(x));
    Tensor<T, 4> out({x.extent(0), x.extent(1), x.extent(2), x.extent(3)});
    Workspace workspace(workspace_size(x.extent(0), x.extent(1)));
    forward(backend, x, positions, out, workspace, length);
    return out;
  }

  // "RotaryEmbedding<float>: head_dim 64, rotary_dim 64, half, no scaling; 256 bytes of weights; backend cpu, sse2"
  std::string describe() const {
    impl::Description text("RotaryEmbedding", scalar_name<T>());
    text.size("head_dim", head_dim_).size("rotary_dim", rotary_dim());
    text.note(layout() == RopeLayout::half ? "half" : "interleaved");
    text.note(impl::describe_scaling(options_.scaling.type));
    return text.build<B>((short_.size() + long_.size()) * static_cast<Index>(sizeof(double)));
  }

 private:
  Problem check_x(View<const T, 4> x) const noexcept {
    return check_input("RotaryEmbedding::forward", "x", x,
                       {{"batch", any}, {"seq", any}, {"heads", any}, {"head dim", head_dim_}});
  }

  Index head_dim_;
  RopeOptions options_;
  Tensor<double, 1> short_;  // [pairs] radians a position, up to the original length
  Tensor<double, 1> long_;   // longrope: beyond it
  double factor_ = 1;
};

}  // namespace heed::inline HEED_ABI
