// Group onnx: node tests of the ONNX standard. Tensors and attributes are named as ONNX names them and lie as its
// operators have them; each case runs in the type it is stored in, whatever --scalar says.
#include <limits>

#include "conformance/masks.hpp"
#include "conformance/run.hpp"
#include "heed/ops/attention.hpp"
#include "heed/ops/linear_attention.hpp"
#include "heed/ops/rotary_embedding.hpp"
#include "heed/ops/softmax.hpp"
#include "heed/ops/tensor_scatter.hpp"

namespace conformance {

using heed::accumulator_t;
using heed::DType;
using heed::Index;
using heed::Tensor;
using heed::View;

namespace {

// Calls run.operator()<T>(backend) for the type of a tensor.
template <class Run>
void dispatch_stored(const Case& test, const char* tensor, const Setup& setup, Run&& run) {
  const DType type = test.dtype(tensor);
  if (type != DType::f32 && type != DType::f16) {
    throw CaseError(std::string(tensor) + ": type " + heed::dtype_name(type) + " is not known to this runner");
  }
  with_backend(setup, [&](const auto& backend) {
    if (type == DType::f32) {
      run.template operator()<float>(backend);
    } else {
      run.template operator()<heed::float16>(backend);
    }
  });
}

void expect_opset(const Case& test, std::initializer_list<const char*> known) {
  for (const char* opset : known) {
    if (test.opset() == opset) return;
  }
  throw CaseError("metadata opset = " + test.opset() + " is not known to this runner");
}

// An attribute that is 0 or 1.
bool flag(const Attributes& attributes, const char* name) {
  const Index value = attributes.find<Index>(name).value_or(0);
  if (value != 0 && value != 1) throw attributes.unknown(name);
  return value == 1;
}

bool is_packed(const Case& test, const char* tensor) {
  return test.shape(tensor).size() == 3;
}

// Heads of a tensor [B, T, heads · D], which the attribute must tell, or [B, heads, T, D], where it may.
Index heads_of(const Case& test, const char* tensor, const char* attribute) {
  const auto shape = test.shape(tensor);
  const auto told = test.attributes().find<Index>(attribute);
  if (shape.size() != 3 && shape.size() != 4) {
    throw CaseError(std::string(tensor) + ": expected 3 or 4 axes, got " + shape_text(shape));
  }
  if (shape.size() == 4) {
    if (told && *told != 0 && *told != shape[1]) throw test.attributes().unknown(attribute);
    return shape[1];
  }
  if (!told || *told < 1 || shape[2] % *told != 0) throw test.attributes().unknown(attribute);
  return *told;
}

// Either of them as heed has it: [B, T, heads, D].
template <class T>
Tensor<T, 4> read_heads(const Case& test, const char* tensor, Index heads) {
  if (is_packed(test, tensor)) {
    const auto packed = test.read<T, 3>(tensor);
    return Tensor<T, 4>(packed.view().split_last(heads, packed.extent(2) / heads));
  }
  const auto split = test.read<T, 4>(tensor);
  return Tensor<T, 4>(split.view().permute({0, 2, 1, 3}));
}

// Compares [B, T, heads, D] with either of them.
template <class T>
void check_heads(Case& test, const char* tensor, const Tensor<T, 4>& got) {
  if (is_packed(test, tensor)) {
    test.check(tensor, got.view().merge_last());
  } else {
    test.check(tensor, got.view().permute({0, 2, 1, 3}));
  }
}

// Keys or values [B, S, K, D] after those of a past [B, K, P, D], if there is one.
template <class T>
Tensor<T, 4> append(const Case& test, const char* past_name, Tensor<T, 4> now) {
  if (!test.contains(past_name)) return now;
  const auto stored = test.read<T, 4>(past_name);
  const View<const T, 4> past = stored.view().permute({0, 2, 1, 3});
  Tensor<T, 4> all({now.extent(0), past.extent(1) + now.extent(1), now.extent(2), now.extent(3)});
  if (past.extent(0) != all.extent(0) || past.extent(2) != all.extent(2) || past.extent(3) != all.extent(3)) {
    throw CaseError(std::string(past_name) + ": unexpected shape " + shape_text(test.shape(past_name)));
  }
  const heed::Reference backend;
  heed::ops::tensor_scatter(backend, past, all, {.axis = 1});
  Tensor<std::int64_t, 1> first({all.extent(0)});
  first.fill(past.extent(1));
  heed::ops::tensor_scatter(backend, now.view(), all, {.axis = 1, .write_indices = first});
  return all;
}

// ONNX lets a mask end before the keys do; keys beyond it are not attended.
template <class M>
Tensor<M, 4> extend(const Tensor<M, 4>& mask, Index keys, M masked) {
  if (mask.empty() || mask.extent(3) >= keys) return mask;
  Tensor<M, 4> result({mask.extent(0), mask.extent(1), mask.extent(2), keys});
  result.fill(masked);
  heed::ops::tensor_scatter(heed::Reference(), mask.view(), result, {.axis = 3});
  return result;
}

// Writes down every score it is shown.
struct Recorder {
  View<float, 4> scores;  // [B, H, T, S]

  void operator()(heed::ScoreTile<float>& tile) const noexcept {
    for (Index row = 0; row < tile.rows; ++row) {
      for (Index column = 0; column < tile.columns; ++column) {
        scores(tile.batch, tile.head, tile.query + row, tile.key + column) = tile(row, column);
      }
    }
  }
};

template <class T>
Tensor<float, 4> as_float(const Tensor<T, 4>& tensor) {
  Tensor<float, 4> result({tensor.extent(0), tensor.extent(1), tensor.extent(2), tensor.extent(3)});
  for (Index i = 0; i < tensor.size(); ++i) result.data()[i] = heed::widen(tensor.data()[i]);
  return result;
}

// What heed does not give: the scores of all queries and keys before the softmax. Mode 0: scale · q·k; 1: after the
// softcap; 2: with everything that masks, too.
template <class T, class B>
Tensor<T, 4> raw_scores(const B& backend, const Tensor<T, 4>& query, const Tensor<T, 4>& key, const Tensor<T, 4>& value,
                        const heed::AttentionOptions<T>& options, Index mode) {
  Tensor<float, 4> scores({query.extent(0), query.extent(2), query.extent(1), key.extent(1)});
  heed::AttentionOptions<float> plain;
  plain.scale = options.scale;
  plain.softcap = mode == 0 ? 0 : options.softcap;
  heed::ops::attention(backend, as_float(query), as_float(key), as_float(value), plain, Recorder{scores});

  Tensor<T, 4> result({scores.extent(0), scores.extent(1), scores.extent(2), scores.extent(3)});
  for (Index b = 0; b < scores.extent(0); ++b) {
    for (Index h = 0; h < scores.extent(1); ++h) {
      for (Index t = 0; t < scores.extent(2); ++t) {
        const Index position = static_cast<Index>(options.query_offsets(b)) + t;
        for (Index s = 0; s < scores.extent(3); ++s) {
          float score = scores(b, h, t, s);
          if (mode == 2) {
            bool attended = options.causal == heed::Causal::none || s <= position;
            if (options.window.left >= 0) attended = attended && s >= position - options.window.left;
            if (options.window.right >= 0) attended = attended && s <= position + options.window.right;
            if (options.key_lengths.present()) attended = attended && s < options.key_lengths(b);
            if (options.mask.present()) {
              attended = attended && options.mask.row(b, h, t)[s * options.mask.key_stride()];
            }
            if (options.bias.present()) score += options.bias.row(b, h, t)[s * options.bias.key_stride()];
            if (!attended) score = -std::numeric_limits<float>::infinity();
          }
          result(b, h, t, s) = heed::narrow<T>(score);
        }
      }
    }
  }
  return result;
}

}  // namespace

void run_onnx_attention(Case& test, const Setup& setup) {
  expect_opset(test, {"23", "24", "25"});
  const Attributes& attributes = test.attributes();
  const Index heads = heads_of(test, "input.Q", "q_num_heads");
  const Index kv_heads = heads_of(test, "input.K", "kv_num_heads");
  const Index mode = attributes.find<Index>("qk_matmul_output_mode").value_or(0);
  if (mode < 0 || mode > 3) throw attributes.unknown("qk_matmul_output_mode");
  // FLOAT, FLOAT16, DOUBLE, BFLOAT16: heed's softmax is in float, which the cases' tolerance does not tell apart.
  const Index precision = attributes.find<Index>("softmax_precision").value_or(1);
  if (precision != 1 && precision != 10 && precision != 11 && precision != 16) {
    throw attributes.unknown("softmax_precision");
  }

  dispatch_stored(test, "input.Q", setup, [&]<class T>(const auto& backend) {
    const auto query = read_heads<T>(test, "input.Q", heads);
    const auto key = append<T>(test, "input.past_key", read_heads<T>(test, "input.K", kv_heads));
    const auto value = append<T>(test, "input.past_value", read_heads<T>(test, "input.V", kv_heads));
    const Index batch = query.extent(0);
    const Index queries = query.extent(1);
    const Index keys = key.extent(1);

    heed::AttentionOptions<T> options;
    if (const auto scale = attributes.find<double>("scale")) options.scale = static_cast<float>(*scale);
    options.softcap = static_cast<float>(attributes.find<double>("softcap").value_or(0));
    if (flag(attributes, "is_causal")) options.causal = heed::Causal::top_left;
    options.window = {attributes.find<Index>("left_window_size").value_or(-1),
                      attributes.find<Index>("right_window_size").value_or(-1)};
    Mask<T> mask(test, "input.attn_mask");
    mask.boolean = extend(mask.boolean, keys, false);
    mask.additive = extend(mask.additive, keys, -std::numeric_limits<float>::infinity());
    options.mask = mask.boolean;
    options.bias = mask.additive;

    // A query's position: after the past, or, with a cache that holds the new keys already, at the end of what is valid.
    const auto lengths = test.contains("input.nonpad_kv_seqlen") ? test.read<std::int64_t, 1>("input.nonpad_kv_seqlen")
                                                                 : Tensor<std::int64_t, 1>();
    Tensor<std::int64_t, 1> offsets({batch});
    const Index past = test.contains("input.past_key") ? test.shape("input.past_key")[2] : 0;
    for (Index b = 0; b < batch; ++b) offsets(b) = lengths.empty() ? past : lengths(b) - queries;
    options.key_lengths = lengths;
    options.query_offsets = offsets;

    Tensor<T, 4> weights;
    if (test.contains("output.qk_matmul_output") && mode == 3) {
      weights = Tensor<T, 4>({batch, heads, queries, keys});
      options.weights = weights;
    }
    check_heads(test, "output.Y", heed::ops::attention(backend, query, key, value, options));
    if (test.contains("output.present_key")) {
      test.check("output.present_key", key.view().permute({0, 2, 1, 3}));
      test.check("output.present_value", value.view().permute({0, 2, 1, 3}));
    }
    if (test.contains("output.qk_matmul_output")) {
      test.check("output.qk_matmul_output",
                 mode == 3 ? weights : raw_scores<T>(backend, query, key, value, options, mode));
    }
  });
}

void run_onnx_linear_attention(Case& test, const Setup& setup) {
  expect_opset(test, {"27"});
  const Attributes& attributes = test.attributes();
  const Index heads = heads_of(test, "input.query", "q_num_heads");
  const Index kv_heads = heads_of(test, "input.key", "kv_num_heads");
  struct Rule {
    bool decays;
    bool corrects;
  };
  const Rule rule = attributes.has("update_rule")
                        ? attributes.one_of<Rule>("update_rule", {{"linear", {false, false}},
                                                                  {"gated", {true, false}},
                                                                  {"delta", {false, true}},
                                                                  {"gated_delta", {true, true}}})
                        : Rule{true, true};

  dispatch_stored(test, "input.query", setup, [&]<class T>(const auto& backend) {
    using A = accumulator_t<T>;
    const auto query = read_heads<T>(test, "input.query", heads);
    const auto key = read_heads<T>(test, "input.key", kv_heads);
    const auto value = read_heads<T>(test, "input.value", kv_heads);
    heed::LinearAttentionOptions<T> options;
    const auto scale = static_cast<A>(attributes.find<double>("scale").value_or(0));
    if (scale != 0) options.scale = scale;
    options.chunk_size = attributes.find<Index>("chunk_size").value_or(64);
    Tensor<A, 3> decay;
    if (rule.decays) {
      decay = test.read<A, 3>("input.decay");
      if (decay.extent(2) % kv_heads != 0) throw CaseError("input.decay: its last axis does not hold whole heads");
      options.decay = std::as_const(decay).view().split_last(kv_heads, decay.extent(2) / kv_heads);
    }
    Tensor<A, 3> beta;
    if (rule.corrects) beta = test.read<A, 3>("input.beta");
    options.beta = beta;

    Tensor<A, 4> state({query.extent(0), kv_heads, key.extent(3), value.extent(3)});
    if (test.contains("input.past_state")) state = test.read<A, 4>("input.past_state");
    Tensor<T, 4> out({query.extent(0), query.extent(1), heads, value.extent(3)});
    heed::ops::linear_attention(backend, query, key, value, state, out, options);
    check_heads(test, "output.output", out);
    test.check("output.present_state", state);
  });
}

void run_onnx_rotary_embedding(Case& test, const Setup& setup) {
  expect_opset(test, {"23"});
  const Attributes& attributes = test.attributes();
  const Index heads = heads_of(test, "input.X", "num_heads");
  const auto layout = flag(attributes, "interleaved") ? heed::RopeLayout::interleaved : heed::RopeLayout::half;
  const Index turned = attributes.find<Index>("rotary_embedding_dim").value_or(0);

  dispatch_stored(test, "input.X", setup, [&]<class T>(const auto& backend) {
    using A = accumulator_t<T>;
    const auto x = read_heads<T>(test, "input.X", heads);
    const Index batch = x.extent(0);
    const Index tokens = x.extent(1);
    const Index pairs = (turned == 0 ? x.extent(3) : turned) / 2;
    // The caches' rows at the positions, or the caches as they are.
    const auto table = [&](const char* name) {
      if (!test.contains("input.position_ids")) return test.read<A, 3>(name);
      const auto positions = test.read<std::int64_t, 2>("input.position_ids");
      const auto cache = test.read<A, 2>(name);
      if (positions.extent(0) != batch || positions.extent(1) != tokens || cache.extent(1) != pairs) {
        throw CaseError(std::string(name) + " or input.position_ids: unexpected shape");
      }
      Tensor<A, 3> rows({batch, tokens, pairs});
      for (Index b = 0; b < batch; ++b) {
        for (Index t = 0; t < tokens; ++t) {
          if (positions(b, t) < 0 || positions(b, t) >= cache.extent(0)) throw CaseError("input.position_ids: too far");
          for (Index i = 0; i < pairs; ++i) rows(b, t, i) = cache(positions(b, t), i);
        }
      }
      return rows;
    };
    const auto cos = table("input.cos_cache");
    const auto sin = table("input.sin_cache");
    if (cos.extent(2) != pairs) throw attributes.unknown("rotary_embedding_dim");
    Tensor<T, 4> out({batch, tokens, heads, x.extent(3)});
    heed::ops::rotary_embedding(backend, x, cos, sin, layout, out);
    check_heads(test, "output.Y", out);
  });
}

namespace {

// Calls run.operator()<Rank>() for a tensor of 1 to 5 axes.
template <int Rank = 5, class Run>
void with_rank(const Case& test, const char* tensor, Run&& run) {
  if (test.shape(tensor).size() == Rank) {
    run.template operator()<Rank>();
  } else if constexpr (Rank > 1) {
    with_rank<Rank - 1>(test, tensor, run);
  } else {
    throw CaseError(std::string(tensor) + ": expected 1 to 5 axes, got " + shape_text(test.shape(tensor)));
  }
}

}  // namespace

void run_onnx_softmax(Case& test, const Setup& setup) {
  expect_opset(test, {"13"});
  const int axis = test.attributes().find<int>("axis").value_or(-1);
  dispatch_stored(test, "input.input", setup, [&]<class T>(const auto& backend) {
    with_rank(test, "input.input", [&]<int Rank>() {
      auto x = test.read<T, Rank>("input.input");
      heed::ops::softmax(backend, x, x, axis);
      test.check("output.output", x);
    });
  });
}

void run_onnx_tensor_scatter(Case& test, const Setup& setup) {
  expect_opset(test, {"24"});
  const Attributes& attributes = test.attributes();
  heed::TensorScatterOptions options;
  options.axis = attributes.find<int>("axis").value_or(-2);
  if (attributes.has("mode")) {
    options.mode = attributes.one_of<heed::ScatterMode>(
        "mode", {{"linear", heed::ScatterMode::linear}, {"circular", heed::ScatterMode::circular}});
  }
  dispatch_stored(test, "input.past_cache", setup, [&]<class T>(const auto& backend) {
    with_rank(test, "input.past_cache", [&]<int Rank>() {
      if constexpr (Rank >= 2) {
        const auto indices = test.contains("input.write_indices") ? test.read<std::int64_t, 1>("input.write_indices")
                                                                  : Tensor<std::int64_t, 1>();
        options.write_indices = indices;
        auto cache = test.read<T, Rank>("input.past_cache");
        heed::ops::tensor_scatter(backend, test.read<T, Rank>("input.update"), cache, options);
        test.check("output.present_cache", cache);
      } else {
        throw CaseError("input.past_cache: expected at least 2 axes");
      }
    });
  });
}

}  // namespace conformance
