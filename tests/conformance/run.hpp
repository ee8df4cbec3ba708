// What a case is run on, and the operations that can be run.
#pragma once

#include <string>

#include "conformance/case.hpp"
#if HEED_TEST_COMPILED
#include "heed/backend/compiled.hpp"
#endif
#include "heed/backend/cpu.hpp"
#include "heed/backend/eigen_map.hpp"
#include "heed/backend/reference.hpp"
#include "heed/backend/simd.hpp"

namespace conformance {

struct Setup {
  std::string backend = "cpu";    // reference, simd, cpu, eigen, compiled, device_host
  std::string scalar = "double";  // double, float
  std::string weights = {};       // a folder with the weights that cases say are not in them; or none
};

// An adapter: reads the case, runs heed on it, checks what comes out. Throws what heed throws, and CaseError.
using Adapter = void (*)(Case& test, const Setup& setup);

// nullptr for an operation that is not known.
Adapter find_adapter(const std::string& op, const std::string& preset);

void run_rotary_embedding(Case& test, const Setup& setup);
void run_seed_rotary_embedding(Case& test, const Setup& setup);
void run_apply_rotary_pos_emb(Case& test, const Setup& setup);
void run_rotate_half(Case& test, const Setup& setup);
void run_repeat_kv(Case& test, const Setup& setup);
void run_attention(Case& test, const Setup& setup);
void run_attention_varlen(Case& test, const Setup& setup);
void run_alibi_slopes(Case& test, const Setup& setup);
void run_infini_attention(Case& test, const Setup& setup);
void run_infini_attention_layer(Case& test, const Setup& setup);
void run_seed_infini_attention(Case& test, const Setup& setup);
void run_seed_multi_head_self_attention(Case& test, const Setup& setup);
void run_attention_layer(Case& test, const Setup& setup);
void run_bert_attention(Case& test, const Setup& setup);
void run_causal_lm(Case& test, const Setup& setup);
void run_bert_encoder(Case& test, const Setup& setup);
void run_sentence_embedding(Case& test, const Setup& setup);
void run_onnx_attention(Case& test, const Setup& setup);
void run_onnx_linear_attention(Case& test, const Setup& setup);
void run_onnx_rotary_embedding(Case& test, const Setup& setup);
void run_onnx_softmax(Case& test, const Setup& setup);
void run_onnx_tensor_scatter(Case& test, const Setup& setup);

// Calls run(backend) for the backend of the setup.
template <class Run>
void with_backend(const Setup& setup, Run&& run) {
  if (setup.backend == "reference") {
    run(heed::Reference());
  } else if (setup.backend == "device_host") {
    throw CaseSkipped("not for devices");  // but in adapters that look for it themselves
  } else if (setup.backend == "simd") {
    run(heed::Simd());
  } else if (setup.backend == "eigen") {
    run(heed::EigenMap());
#if HEED_TEST_COMPILED
  } else if (setup.backend == "compiled") {
    run(heed::Compiled());
#endif
  } else {
    run(heed::Cpu());
  }
}

// Calls run.operator()<T>(backend) for the scalar and the backend of the setup.
template <class Run>
void dispatch(const Setup& setup, Run&& run) {
  with_backend(setup, [&](const auto& backend) {
    if (setup.scalar == "float") {
      run.template operator()<float>(backend);
    } else {
      run.template operator()<double>(backend);
    }
  });
}

}  // namespace conformance
