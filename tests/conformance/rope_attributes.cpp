#include "conformance/rope_attributes.hpp"

#include <vector>

namespace conformance {

namespace {

heed::RopeFactors factors(const Attributes& scaling, const std::string& key) {
  heed::RopeFactors list;
  for (const double value : scaling.get<std::vector<double>>(key)) list.append(value);
  return list;
}

heed::RopeScaling rope_scaling(const Attributes& scaling) {
  heed::RopeScaling result;
  result.type = scaling.one_of<heed::RopeType>("type", {{"linear", heed::RopeType::linear},
                                                        {"dynamic", heed::RopeType::dynamic},
                                                        {"yarn", heed::RopeType::yarn},
                                                        {"longrope", heed::RopeType::longrope},
                                                        {"llama3", heed::RopeType::llama3},
                                                        {"proportional", heed::RopeType::proportional}});
  // Names that Hugging Face's types share; a type that has no use for one is given it all the same.
  const auto number = [&](const char* key, double& value) { value = scaling.find<double>(key).value_or(value); };
  const auto length = [&](const char* key, heed::Index& value) {
    value = scaling.find<heed::Index>(key).value_or(value);
  };
  number("factor", result.factor);
  length("max_position_embeddings", result.max_position_embeddings);
  length("original_max_position_embeddings", result.original_max_position_embeddings);
  switch (result.type) {
    case heed::RopeType::yarn:
      number("attention_factor", result.attention_factor);
      number("beta_fast", result.beta_fast);
      number("beta_slow", result.beta_slow);
      number("mscale", result.mscale);
      number("mscale_all_dim", result.mscale_all_dim);
      result.truncate = scaling.find<bool>("truncate").value_or(true);
      break;
    case heed::RopeType::longrope:
      number("attention_factor", result.attention_factor);
      result.short_factor = factors(scaling, "short_factor");
      result.long_factor = factors(scaling, "long_factor");
      break;
    case heed::RopeType::llama3:
      number("low_freq_factor", result.low_freq_factor);
      number("high_freq_factor", result.high_freq_factor);
      break;
    case heed::RopeType::proportional: number("partial_rotary_factor", result.partial_rotary_factor); break;
    default: break;
  }
  scaling.finish();
  return result;
}

}  // namespace

heed::RopeOptions rope_options(const Attributes& rope) {
  heed::RopeOptions options;
  options.theta = rope.get<double>("theta");
  options.layout = rope.one_of<heed::RopeLayout>(
      "layout", {{"half", heed::RopeLayout::half}, {"interleaved", heed::RopeLayout::interleaved}});
  options.rotary_dim = rope.size("rotary_dim");
  if (rope.has("scaling")) options.scaling = rope_scaling(rope.object("scaling"));
  rope.finish();
  return options;
}

}  // namespace conformance
