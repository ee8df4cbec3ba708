// ops::repeat_kv: key/value heads repeated to the number of query heads.
#pragma once

#include "heed/backend/backend.hpp"
#include "heed/core/tensor.hpp"
#include "heed/kernels/reference/repeat_kv.hpp"
#include "heed/ops/rows.hpp"
#if HEED_CPU_KERNELS
#include "heed/kernels/cpu/repeat_kv.hpp"
#endif

namespace heed::inline HEED_ABI::ops {

// What is wrong with the arguments of repeat_kv().
template <class T>
[[nodiscard]] Problem check_repeat_kv(View<const T, 4> x, View<T, 4> out) noexcept {
  const char* door = "repeat_kv";
  Problem problem = check_input(door, "x", x, {{"batch", any}, {"seq", any}, {"kv heads", any}, {"head dim", any}});
  if (!problem) {
    problem = check_output(door, "out", out,
                           {{"batch", x.extent(0)}, {"seq", x.extent(1)}, {"heads", any}, {"head dim", x.extent(3)}});
  }
  if (problem) return problem;
  const Index heads = out.extent(2);
  const Index kv_heads = x.extent(2);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    return problem_at(ErrorKind::shape, door, "out")
        .append("its ")
        .append(heads)
        .append(" heads are not a multiple of x's ")
        .append(kv_heads)
        .append(" kv heads");
  }
  return check_disjoint(door, out, x, "x");
}

// out[b, s, h, :] = x[b, s, h / (heads / kv heads), :]: every kv head repeated for its group of query heads, next to
// each other (0, 0, 1, 1), not in turns. heed's attention does not need it: it reads the shared head where it is.
//
//   x    [batch, seq, kv heads, head dim]
//   out  [batch, seq, heads, head dim]   heads a multiple of kv heads; must not overlap x
//
// Allocates nothing. Numerics: copies. Errors: ShapeError. Source: repeat_kv of Hugging Face's Llama, torch
// .repeat_interleave.
template <Backend B, class Out>
void repeat_kv(const B& backend, ViewOn<B, const scalar_t<Out>, 4> x, Out&& out) {
  const auto y = output_on(backend, out);
  raise_if(check_repeat_kv(for_check(x), for_check(y)));
  if (y.empty()) return;
  repeat_kv_kernel(backend, x, y);
}

}  // namespace heed::inline HEED_ABI::ops
