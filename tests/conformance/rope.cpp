// Group rope, and the seed's own functions about rotary embedding.
#include "conformance/rope_attributes.hpp"
#include "conformance/run.hpp"
#include "heed/layers/rotary_embedding.hpp"

namespace conformance {

using heed::accumulator_t;
using heed::Index;
using heed::Tensor;

void run_rotary_embedding(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const auto head_dim = attributes.size("head_dim");
  const heed::RopeOptions options = rope_options(attributes.object("rope"));
  const Index length = attributes.find<Index>("seq_len").value_or(0);
  attributes.expect("num_heads", test.extent("input.q", 2));

  dispatch(setup, [&]<class T>(const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const heed::RotaryEmbedding<T, B> rope(head_dim, options);
    const auto frequencies = rope.inverse_frequencies(length);
    test.check("output.inv_freq", frequencies);
    // As transformers holds them, in float32 whatever the case is run in.
    test.check("output.inv_freq_float32", frequencies, "", test.tolerance("float32"));
    Tensor<double, 1> factor({1});
    factor(0) = rope.attention_factor();
    test.check("output.attention_factor", factor);

    const auto positions = test.read<std::int64_t, 2>("input.positions");
    const Index extents[] = {positions.extent(0), positions.extent(1), rope.pairs()};
    Tensor<accumulator_t<T>, 3> cos(extents);
    Tensor<accumulator_t<T>, 3> sin(extents);
    rope.cos_sin(backend, positions, cos, sin, length);
    test.check("output.cos", cos);
    test.check("output.sin", sin);
    test.check("output.q", rope.forward(backend, test.read<T, 4>("input.q"), positions.view(), length));
  });
}

// cos and sin [seq_len, head_dim], the second half equal to the first.
void run_seed_rotary_embedding(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const auto head_dim = attributes.size("head_dim");
  const auto length = attributes.size("seq_len");
  const heed::RopeOptions options = rope_options(attributes.object("rope"));
  if (options.rotary_dim != head_dim) throw attributes.unknown("rope");
  attributes.size("max_position_embeddings");  // the seed's table grows beyond it, heed has none

  dispatch(setup, [&]<class T>(const auto& backend) {
    using A = accumulator_t<T>;
    using B = std::remove_cvref_t<decltype(backend)>;
    const heed::RotaryEmbedding<T, B> rope(head_dim, options);
    test.check("output.inv_freq", rope.inverse_frequencies());

    Tensor<std::int64_t, 2> positions({Index{1}, length});
    for (Index t = 0; t < length; ++t) positions(0, t) = t;
    Tensor<A, 3> tables[] = {Tensor<A, 3>({Index{1}, length, rope.pairs()}),
                             Tensor<A, 3>({Index{1}, length, rope.pairs()})};
    rope.cos_sin(backend, positions, tables[0], tables[1]);
    const char* names[] = {"output.cos", "output.sin"};
    for (int i = 0; i < 2; ++i) {
      Tensor<A, 2> doubled({length, 2 * rope.pairs()});
      for (Index t = 0; t < length; ++t) {
        for (Index d = 0; d < 2 * rope.pairs(); ++d) doubled(t, d) = tables[i](0, t, d % rope.pairs());
      }
      test.check(names[i], doubled);
    }
  });
}

void run_apply_rotary_pos_emb(Case& test, const Setup& setup) {
  const Attributes& attributes = test.attributes();
  const auto head_dim = attributes.size("head_dim");
  const heed::RopeOptions options = rope_options(attributes.object("rope"));
  attributes.expect("num_heads", test.extent("input.q", 2));
  attributes.expect("num_kv_heads", test.extent("input.k", 2));

  dispatch(setup, [&]<class T>(const auto& backend) {
    using B = std::remove_cvref_t<decltype(backend)>;
    const heed::RotaryEmbedding<T, B> rope(head_dim, options);
    const auto positions = test.read<std::int64_t, 2>("input.positions");
    test.check("output.q", rope.forward(backend, test.read<T, 4>("input.q"), positions.view()));
    test.check("output.k", rope.forward(backend, test.read<T, 4>("input.k"), positions.view()));
  });
}

void run_rotate_half(Case& test, const Setup& setup) {
  test.attributes().expect("head_dim", test.extent("input.x", -1));
  dispatch(setup, [&]<class T>(const auto& backend) {
    const auto x = test.read<T, 4>("input.x");
    Tensor<T, 4> out({x.extent(0), x.extent(1), x.extent(2), x.extent(3)});
    heed::ops::rotate_half(backend, x, out);
    test.check("output.output", out);
  });
}

}  // namespace conformance
