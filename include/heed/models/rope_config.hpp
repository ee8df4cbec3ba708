// Rotary options out of a config.json, in both of the forms that Transformers has written: rope_theta and rope_scaling,
// and, since version 5, rope_parameters.
#pragma once

#include "heed/models/config.hpp"
#include "heed/ops/rope_options.hpp"

namespace heed {

// What a family's rotary embedding is by default, and what its members are called beside rope_parameters.
struct RopeFamily {
  RopeLayout layout = RopeLayout::half;
  double theta = 10000;
  double fraction = 1;  // of head_dim that turns
  const char* theta_name = "rope_theta";
  const char* fraction_name = "partial_rotary_factor";
  const char* dim_name = nullptr;          // a member with rotary_dim itself (GPT-J)
  const char* local_theta_name = nullptr;  // theta of sliding layers, which are not scaled (Gemma 3)
  double local_theta = 10000;
};

}  // namespace heed

namespace heed::inline HEED_ABI {

namespace impl {

inline RopeType rope_type(const ConfigReader& parameters) {
  struct Named {
    const char* name;
    RopeType type;
  };
  constexpr Named types[] = {{"default", RopeType::none},      {"linear", RopeType::linear},
                             {"dynamic", RopeType::dynamic},   {"yarn", RopeType::yarn},
                             {"longrope", RopeType::longrope}, {"su", RopeType::longrope},  // as Phi-3 first called it
                             {"llama3", RopeType::llama3},     {"proportional", RopeType::proportional}};
  parameters.contains("type");  // files from between the two names have both
  return parameters.choose(parameters.contains("rope_type") ? "rope_type" : "type", types, &Named::name, "default")
      .type;
}

// The scaling that an object of parameters describes. Members that its type does not read are refused.
inline RopeScaling rope_scaling(const ConfigReader& config, const ConfigReader& parameters) {
  RopeScaling scaling;
  scaling.type = rope_type(parameters);
  scaling.max_position_embeddings = config.size("max_position_embeddings", 0);
  // Transformers gives the one outside priority, and adds the one inside to types that have no use for it.
  const Index inside = parameters.size("original_max_position_embeddings", 0);
  scaling.original_max_position_embeddings = config.size("original_max_position_embeddings", inside);
  if (scaling.type != RopeType::none) scaling.factor = parameters.number("factor", 0);
  if (scaling.type == RopeType::yarn || scaling.type == RopeType::longrope) {
    scaling.attention_factor = parameters.number("attention_factor", 0);
  }
  if (scaling.type == RopeType::yarn) {
    scaling.beta_fast = parameters.number("beta_fast", scaling.beta_fast);
    scaling.beta_slow = parameters.number("beta_slow", scaling.beta_slow);
    scaling.mscale = parameters.number("mscale", 0);
    scaling.mscale_all_dim = parameters.number("mscale_all_dim", 0);
    scaling.truncate = parameters.flag("truncate", true);
  } else if (scaling.type == RopeType::longrope) {
    parameters.numbers("short_factor", [&](double value) { scaling.short_factor.append(value); });
    parameters.numbers("long_factor", [&](double value) { scaling.long_factor.append(value); });
  } else if (scaling.type == RopeType::llama3) {
    scaling.low_freq_factor = parameters.number("low_freq_factor");
    scaling.high_freq_factor = parameters.number("high_freq_factor");
  } else if (scaling.type == RopeType::proportional) {
    scaling.partial_rotary_factor = parameters.number("partial_rotary_factor", 1);
  }
  return scaling;
}

}  // namespace impl

// The rotary options of a layer. `layer_type` is "full_attention" or "sliding_attention": rope_parameters may hold an
// object for each. Errors: FormatError for a type of scaling that heed does not have, and for a member of the
// parameters that its type does not read. (That the values fit each other is checked by the layer.)
inline RopeOptions rope_options(const ConfigReader& config, const RopeFamily& family, Index head_dim,
                                const char* layer_type) {
  const Json nothing = Json::object();
  const bool sliding = std::string_view(layer_type) == "sliding_attention";
  const bool unscaled = sliding && family.local_theta_name != nullptr;
  RopeOptions options;
  options.layout = family.layout;
  // Some files have a member under both names.
  options.theta = config.number("rope_theta", config.number(family.theta_name, family.theta));
  if (family.local_theta_name != nullptr) {
    const double local = config.number(family.local_theta_name, family.local_theta);
    if (sliding) options.theta = local;
  }
  double fraction = config.number("partial_rotary_factor", config.number(family.fraction_name, family.fraction));

  ConfigReader parameters(nothing, "config.json", "");
  const bool old_form = !config.contains("rope_parameters");
  if (!old_form) {
    parameters = config.object("rope_parameters");
    if (parameters.contains("full_attention") || parameters.contains("sliding_attention")) {
      parameters = parameters.object(layer_type);
    }
    if (config.contains("rope_scaling")) {
      raise(config.problem("rope_scaling").append("must be absent beside rope_parameters, which says the same"));
    }
  } else if (config.contains("rope_scaling")) {
    const ConfigReader scaling = config.object("rope_scaling");
    if (!unscaled) parameters = scaling;
  }
  options.theta = parameters.number("rope_theta", options.theta);
  fraction = parameters.number("partial_rotary_factor", fraction);
  options.scaling = impl::rope_scaling(config, parameters);
  parameters.finish();
  if (family.dim_name != nullptr) {
    options.rotary_dim = config.size(family.dim_name, 0);
  } else if (options.scaling.type != RopeType::proportional && fraction != 1) {
    if (!(fraction > 0 && fraction <= 1)) {
      raise(config.problem(family.fraction_name).append("expected 0 < fraction <= 1, got ").append_number(fraction));
    }
    options.rotary_dim = static_cast<Index>(static_cast<double>(head_dim) * fraction);  // cut off, as Transformers does
    if (options.rotary_dim == 0) raise(config.problem(family.fraction_name).append("leaves no dim of a head to turn"));
  }
  return options;
}

}  // namespace heed::inline HEED_ABI
