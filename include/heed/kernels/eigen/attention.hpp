// EigenMap kernel of ops::attention: Simd's blocks on Eigen's product.
#pragma once

#include "heed/backend/eigen_map.hpp"
#include "heed/kernels/eigen/product.hpp"
#include "heed/kernels/simd/attention.hpp"

namespace heed::inline HEED_ABI {

template <class T>
std::size_t attention_workspace_kernel(const EigenMap&, const AttentionExtents& extents) noexcept {
  return attention_workspace_kernel<T>(Simd(), extents);
}

template <class T, class Modifier>
void attention_kernel(const EigenMap&, const AttentionArguments<T>& arguments, const Modifier& modifier,
                      Workspace& workspace) noexcept {
  impl::run_attention<impl::EigenProduct>(arguments, modifier, workspace);
}

}  // namespace heed::inline HEED_ABI
