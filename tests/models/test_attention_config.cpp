// What config.json says of an attention layer: sizes, windows, rotary options of both forms, and what is refused.
#include <doctest/doctest.h>

#include <string>

#include "heed/models/attention_config.hpp"
#include "models/model_files.hpp"
#include "support/error_text.hpp"

namespace {

using heed::attention_config;
using heed::AttentionBias;
using heed::AttentionConfig;
using heed::Index;
using heed::ModelConfig;
using heed::RopeLayout;
using heed::RopeType;
using test::error_text;
using test::llama_config;

AttentionConfig read(const std::string& text, Index layer = 0) {
  return attention_config(ModelConfig::from_text(text), layer);
}
AttentionConfig llama(const std::string& more) {
  return read(llama_config(more));
}

// "{members}" of another family with the sizes that most of them share.
std::string family(const std::string& type, const std::string& members) {
  return "{\"model_type\": \"" + type +
         "\", \"hidden_size\": 32, \"num_hidden_layers\": 6, \"num_attention_heads\": 4, \"rms_norm_eps\": 1e-6, "
         "\"layer_norm_eps\": 1e-5, \"max_position_embeddings\": 64" +
         (members.empty() ? "" : ", " + members) + "}";
}

Index window_of(const std::string& text, Index layer) {
  const heed::Window window = read(text, layer).options.window;
  CHECK(window.right == (window.left < 0 ? -1 : 0));
  return window.left + 1;
}

std::string refusal(const std::string& text, Index layer = 0) {
  return error_text([&] { read(text, layer); });
}

}  // namespace

TEST_CASE("attention config: sizes, and what follows from them") {
  const AttentionConfig plain = llama("");
  CHECK(plain.hidden_size == 8);
  CHECK(plain.heads == heed::HeadLayout{.num_heads = 4, .num_kv_heads = 2, .head_dim = 2});
  CHECK(plain.bias == AttentionBias::none);
  CHECK(plain.options.causal);
  CHECK_FALSE(plain.options.scale.given());
  CHECK(plain.options.rope == heed::RopeOptions{.scaling = {.max_position_embeddings = 64}});
  CHECK(llama("\"head_dim\": 6,").heads.head_dim == 6);
  CHECK(llama("\"head_dim\": null,").heads.head_dim == 2);
  CHECK(llama("\"attention_bias\": true,").bias == AttentionBias::all);
  CHECK(llama("\"attention_dropout\": 0.25,").options.dropout == 0.25);
  CHECK(read(family("qwen2", "")).bias == AttentionBias::input);
  CHECK(read(family("qwen2", "")).heads.num_kv_heads == 4);
  CHECK(read(family("gpt_neox", "")).bias == AttentionBias::all);
}

TEST_CASE("attention config: kv heads of Falcon") {
  const auto kv_heads = [](const std::string& members) { return read(family("falcon", members)).heads.num_kv_heads; };
  CHECK(kv_heads("") == 1);
  CHECK(kv_heads("\"multi_query\": true, \"num_kv_heads\": 2") == 1);
  CHECK(kv_heads("\"multi_query\": true, \"new_decoder_architecture\": true, \"num_kv_heads\": 2") == 2);
  CHECK(kv_heads("\"multi_query\": false, \"num_kv_heads\": 4") == 4);
}

TEST_CASE("attention config: scale, softcap and norms") {
  const auto gemma = read(family("gemma2",
                                 "\"query_pre_attn_scalar\": 16, \"attn_logit_softcapping\": 50.0, "
                                 "\"sliding_window\": 4, \"final_logit_softcapping\": 30.0"));
  CHECK(gemma.options.scale.value(32) == 0.25);
  CHECK(gemma.options.softcap == 50);
  CHECK(gemma.options.norm.kind == heed::QueryKeyNorm::none);
  CHECK(read(family("qwen3", "")).options.norm.kind == heed::QueryKeyNorm::rms);
  CHECK(read(family("qwen3", "")).options.norm.eps == 1e-6);
  CHECK(read(family("phi", "")).options.norm.kind == heed::QueryKeyNorm::none);
  CHECK(read(family("phi", "\"qk_layernorm\": true")).options.norm.eps == 1e-5);
  CHECK(read(family("cohere", "\"use_qk_norm\": true")).options.norm.over == heed::NormOver::each_head);
  CHECK(read(R"({"model_type": "mpt", "d_model": 16, "n_layers": 1, "n_heads": 2,
                 "attn_config": {"softmax_scale": 0.5, "attn_pdrop": 0.1, "clip_qkv": null, "qk_ln": false}})")
            .options.scale.value(8) == 0.5);
}

TEST_CASE("attention config: which layers have a window") {
  for (Index layer = 0; layer < 6; ++layer) {
    INFO("layer ", layer);
    CHECK(window_of(family("mistral", "\"sliding_window\": 7"), layer) == 7);
    CHECK(window_of(family("mistral", "\"sliding_window\": null"), layer) == 0);
    CHECK(window_of(family("gpt_oss", "\"sliding_window\": 3"), layer) == (layer % 2 == 0 ? 3 : 0));
    const std::string gemma3 = "\"query_pre_attn_scalar\": 8, \"sliding_window\": 5";
    CHECK(window_of(family("gemma3_text", gemma3), layer) == (layer == 5 ? 0 : 5));
    CHECK(window_of(family("gemma3_text", gemma3 + ", \"sliding_window_pattern\": 3"), layer) ==
          (layer % 3 == 2 ? 0 : 5));
    const std::string qwen = "\"sliding_window\": 9, \"max_window_layers\": 4";
    CHECK(window_of(family("qwen2", qwen), layer) == 0);
    CHECK(window_of(family("qwen2", qwen + ", \"use_sliding_window\": true"), layer) == (layer >= 4 ? 9 : 0));
  }
  const std::string types = R"("sliding_window": 3, "layer_types": ["full_attention", "sliding_attention",
                               "full_attention", "full_attention", "full_attention", "full_attention"])";
  CHECK(window_of(family("gpt_oss", types), 0) == 0);
  CHECK(window_of(family("gpt_oss", types), 1) == 3);
}

TEST_CASE("rope config: both forms, and each type's parameters") {
  const std::string scaling = R"("factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                 "original_max_position_embeddings": 32)";
  const auto old_form = llama(R"("rope_scaling": {"rope_type": "llama3", )" + scaling + "},").options.rope;
  const auto new_form =
      llama(R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, )" + scaling + "},").options.rope;
  CHECK(old_form == new_form);
  CHECK(old_form.scaling.type == RopeType::llama3);
  CHECK(old_form.scaling.factor == 8);
  CHECK(old_form.scaling.original_max_position_embeddings == 32);
  CHECK(llama(R"("rope_parameters": {"rope_theta": 5.0},)").options.rope.theta == 5);
  CHECK(
      llama(R"("rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0},)").options.rope.scaling.type ==
      RopeType::linear);

  const auto yarn = llama(R"("rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                              "beta_fast": 16, "truncate": false},)")
                        .options.rope.scaling;
  CHECK(yarn.beta_fast == 16);
  CHECK(yarn.beta_slow == 1);
  CHECK_FALSE(yarn.truncate);

  // Phi-3 has the original length outside, and first called the type "su".
  const auto longrope = read(family("phi3", R"("sliding_window": null, "original_max_position_embeddings": 16,
      "rope_scaling": {"type": "su", "short_factor": [1, 1.1, 1.2, 1.3], "long_factor": [1, 2.5, 3, 4]})"));
  CHECK(longrope.options.rope.scaling.type == RopeType::longrope);
  CHECK(longrope.options.rope.scaling.original_max_position_embeddings == 16);
  CHECK(longrope.options.rope.scaling.long_factor[1] == 2.5);
  CHECK(longrope.options.rope.scaling.short_factor.size() == 4);
}

TEST_CASE("rope config: layouts, parts of a head, and thetas of two kinds of layers") {
  CHECK(read(family("cohere", "")).options.rope.layout == RopeLayout::interleaved);
  CHECK(read(family("phi", "")).options.rope.rotary_dim == 4);
  CHECK(read(family("phi", "\"partial_rotary_factor\": 0.25")).options.rope.rotary_dim == 2);
  CHECK(read(family("gpt_neox", "\"rotary_pct\": 0.5, \"rotary_emb_base\": 77")).options.rope.rotary_dim == 4);
  CHECK(read(family("gpt_neox", "\"rotary_pct\": 0.5, \"rotary_emb_base\": 77")).options.rope.theta == 77);
  CHECK(read(family("gpt_neox", "")).options.rope.rotary_dim == 2);
  const auto gptj = read(R"({"model_type": "gptj", "n_embd": 24, "n_layer": 1, "n_head": 2, "rotary_dim": 8})");
  CHECK(gptj.options.rope.rotary_dim == 8);
  CHECK(gptj.options.rope.layout == RopeLayout::interleaved);

  const std::string gemma = R"("query_pre_attn_scalar": 8, "sliding_window": 5, )";
  const std::string old_form = family("gemma3_text", gemma + R"("rope_theta": 1000000, "rope_local_base_freq": 10000,
                                "rope_scaling": {"rope_type": "linear", "factor": 8.0})");
  const std::string new_form = family("gemma3_text", gemma + R"("rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})");
  for (const std::string& text : {old_form, new_form}) {
    CHECK(read(text, 0).options.rope.theta == 10000);
    CHECK(read(text, 0).options.rope.scaling.type == RopeType::none);
    CHECK(read(text, 5).options.rope.theta == 1000000);
    CHECK(read(text, 5).options.rope.scaling.factor == 8);
  }
}

TEST_CASE("attention config: what heed does not have is refused by name") {
  CHECK(refusal(llama_config(R"("rope_scaling": {"rope_type": "mrope"},)")) ==
        "heed: config.json: rope_scaling.rope_type: expected one of default linear dynamic yarn longrope su llama3 "
        "proportional, got mrope");
  CHECK(refusal(llama_config(R"("rope_scaling": {"type": "linear", "factor": 2, "mrope_section": [1, 1]},)")) ==
        "heed: config.json: rope_scaling.mrope_section: is not an option that is supported, got [...]");
  CHECK(refusal(llama_config(R"("rope_scaling": {"factor": 2},)")) ==
        "heed: config.json: rope_scaling.factor: is not an option that is supported, got 2");
  CHECK(refusal(llama_config(R"("rope_scaling": {}, "rope_parameters": {},)")) ==
        "heed: config.json: rope_scaling: must be absent beside rope_parameters, which says the same");
  CHECK(refusal(llama_config("\"attention_multiplier\": 0.5,")) ==
        "heed: config.json: attention_multiplier: is not an option that is supported, got 0.5");
  CHECK(refusal(llama_config("\"quantization_config\": {\"bits\": 4},")) ==
        "heed: config.json: quantization_config: is not an option that is supported, got {...}");
  CHECK(refusal(llama_config("\"sliding_window\": 4,")) ==
        "heed: config.json: sliding_window: is not an option of this family, got 4");
  CHECK(refusal(family("falcon", "\"alibi\": true")) == "heed: config.json: alibi: only false is supported, got true");
  CHECK(refusal(family("bert", "\"position_embedding_type\": \"relative_key\"")) ==
        "heed: config.json: position_embedding_type: only \"absolute\" is supported, got \"relative_key\"");
  CHECK(
      refusal(R"({"model_type": "mpt", "d_model": 16, "n_layers": 1, "n_heads": 2, "attn_config": {"clip_qkv": 6}})") ==
      "heed: config.json: attn_config.clip_qkv: is not an option that is supported, got 6");
  CHECK(refusal(family("qwen2",
                       "\"sliding_window\": 4, \"layer_types\": [\"sliding_attention\", \"\", \"\", \"\", \"\", "
                       "\"\"]")) ==
        "heed: config.json: layer_types: expected full_attention or sliding_attention, got sliding_attention");
  CHECK(refusal(family("t5", "")) ==
        "heed: config.json: model_type: expected one of llama mistral qwen2 qwen3 gemma2 gemma3_text phi3 phi gpt_neox "
        "gptj gpt_oss cohere falcon mpt olmo2 bert, got t5");
}

TEST_CASE("attention config: members that are missing, of another type, or do not fit") {
  CHECK(refusal("{}") == "heed: config.json: model_type: is missing, expected a text");
  CHECK(refusal("{\"model_type\": 3}") == "heed: config.json: model_type: expected a text, got 3");
  CHECK(refusal("{\"model_type\": \"llama\"}") ==
        "heed: config.json: num_hidden_layers: is missing, expected a whole number from 1 to 268435455");
  CHECK(refusal(R"({"model_type": "llama", "num_hidden_layers": -1})") ==
        "heed: config.json: num_hidden_layers: expected a whole number from 1 to 268435455, got -1");
  CHECK(refusal(R"({"model_type": "llama", "num_hidden_layers": 4294967296})") ==
        "heed: config.json: num_hidden_layers: expected a whole number from 1 to 268435455, got 4294967296");
  CHECK(refusal(R"({"model_type": "llama", "num_hidden_layers": 1.5})") ==
        "heed: config.json: num_hidden_layers: expected a whole number from 1 to 268435455, got 1.5");
  CHECK(refusal(llama_config(), 2) == "heed: config.json: num_hidden_layers: 2 layers do not include layer 2");
  CHECK(refusal(llama_config("\"attention_bias\": 1,")) ==
        "heed: config.json: attention_bias: expected true or false, got 1");
  CHECK(refusal(llama_config("\"partial_rotary_factor\": 1.5,")) ==
        "heed: config.json: partial_rotary_factor: expected 0 < fraction <= 1, got 1.5");
  CHECK(refusal(llama_config("\"partial_rotary_factor\": 0.1,")) ==
        "heed: config.json: partial_rotary_factor: leaves no dim of a head to turn");
  CHECK(refusal(llama_config(R"("rope_scaling": {"type": "longrope", "short_factor": 1},)")) ==
        "heed: config.json: rope_scaling.short_factor: expected a list of numbers, got 1");
  CHECK(refusal(llama_config("\"rope_scaling\": 1,")) == "heed: config.json: rope_scaling: expected an object, got 1");
  CHECK(refusal(llama_config(R"("rope_scaling": {"rope_type": "llama3", "factor": 2, "low_freq_factor": true},)")) ==
        "heed: config.json: rope_scaling.low_freq_factor: expected a number, got true");
  CHECK(refusal(family("gpt_oss", "\"sliding_window\": 3, \"layer_types\": [\"full_attention\"]")) ==
        "heed: config.json: layer_types: expected a list of 6 texts, one a layer");
  CHECK(refusal(family("mistral", "")) ==
        "heed: config.json: sliding_window: is missing, expected a number of tokens or null");
  CHECK(refusal(family("gpt_oss", "")) ==
        "heed: config.json: sliding_window: is missing, expected a whole number from 1 to 268435455");
  CHECK(refusal(family("llama", "\"num_key_value_heads\": 3")) ==
        "heed: config.json: num_heads: 4 is not a multiple of num_kv_heads 3");
}

TEST_CASE("config: files that are no config") {
  const auto text_of = [](const std::string& text) { return error_text([&] { ModelConfig::from_text(text); }); };
  CHECK(text_of("") == "heed: ModelConfig: config.json: not valid JSON");
  CHECK(text_of("{") == "heed: ModelConfig: config.json: not valid JSON");
  CHECK(text_of(std::string("{}\0", 3)) == "heed: ModelConfig: config.json: holds a zero byte");
  CHECK(text_of("[1]") == "heed: ModelConfig: config.json: expected an object, got [...]");
  CHECK(text_of(std::string(100000, '[')) == "heed: ModelConfig: config.json: not valid JSON");
  CHECK(error_text([] { ModelConfig::open("/nowhere/config.json"); }) ==
        "heed: ModelConfig: /nowhere/config.json: No such file or directory");
}
