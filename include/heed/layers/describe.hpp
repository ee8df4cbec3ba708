// What describe() of the layers is made with: sizes, bytes, and what the code was compiled for.
#pragma once

#include <string>

#include "heed/core/scalar.hpp"
#include "heed/core/view.hpp"

namespace heed::inline HEED_ABI {

// The instruction set this translation unit is compiled for: "avx2 with fma", "sse2".
constexpr const char* instruction_set() noexcept {
#define HEED_DESCRIBE_TEXT(name) #name
#define HEED_DESCRIBE_EXPAND(name) HEED_DESCRIBE_TEXT(name)
#if HEED_FMA
  return HEED_DESCRIBE_EXPAND(HEED_ABI_ISA) " with fma";
#else
  return HEED_DESCRIBE_EXPAND(HEED_ABI_ISA);
#endif
#undef HEED_DESCRIBE_EXPAND
#undef HEED_DESCRIBE_TEXT
}

namespace impl {

// The one that a backend's kernels are compiled for.
template <class B>
const char* instruction_set_of() noexcept {
  if constexpr (requires { B::instruction_set_name(); }) {
    return B::instruction_set_name();
  } else {
    return instruction_set();
  }
}

// "GroupedQueryAttention<float>: hidden_size 64, num_heads 8; 16384 bytes of weights; backend cpu, avx2 with fma".
class Description {
 public:
  Description(const char* layer, const char* scalar) { text_.append(layer).append("<").append(scalar).append(">:"); }

  Description& note(const char* text) {
    text_.append(text_.back() == ':' ? " " : ", ").append(text);
    return *this;
  }
  Description& size(const char* name, Index value) {
    note(name);
    text_.append(" ").append(std::to_string(value));
    return *this;
  }

  // Ends the text.
  template <class B>
  std::string build(Index weight_bytes) {
    text_.append("; ").append(std::to_string(weight_bytes)).append(" bytes of weights; backend ").append(B::name());
    return text_.append(", ").append(instruction_set_of<B>());
  }

 private:
  std::string text_;
};

}  // namespace impl
}  // namespace heed::inline HEED_ABI
