// What a backend is.
//
// A backend is an object whose type is a template argument of the layers. It carries what runs the work (an executor),
// no scratch memory and no state. Doors (heed/ops/) check shapes and call the hook `<operation>_kernel(backend, …)`,
// found by overload on the backend's type: a derived backend that lacks an overload falls back to its base, so
//
//     Cpu : Simd : Reference
//
// and a third party replaces one kernel by deriving from any of them and overloading one hook in its own namespace.
//
// Rules for hooks: arguments are checked; noexcept (but a device's, which throw what its driver says); no allocation; no
// call of another operation through the backend (a composite written for `const Reference&` would lose the fast path:
// composites live in ops/ and layers/).
//
// A backend whose memory is not the host's (heed/cuda/device.hpp) derives from none of them: what it lacks does not
// compile, instead of running on memory that the host cannot read.
#pragma once

#include <concepts>
#include <utility>

#include "heed/backend/reference.hpp"
#include "heed/core/tensor.hpp"
#include "heed/core/workspace.hpp"

namespace heed::inline HEED_ABI {

// Works on the host's memory.
template <class B>
concept HostBackend = std::derived_from<B, Reference>;

template <class B>
concept Backend = HostBackend<B> || B::is_device;

// The memory that a backend works on, and views of it.
template <class B>
using space_of = typename B::space_type;
template <class B, class T, int Rank>
using ViewOn = View<T, Rank, space_of<B>>;
template <class B>
using WorkspaceOn = BasicWorkspace<space_of<B>>;

// A tensor of zeros in the backend's memory. Allocates.
template <class B, class T, int Rank>
using TensorOn = Tensor<T, Rank, space_of<B>>;
template <class T, class B, int Rank>
TensorOn<B, T, Rank> make_tensor(const B& backend, const Index (&extents)[Rank]) {
  if constexpr (HostBackend<B>) {
    return Tensor<T, Rank>(extents);
  } else {
    return TensorOn<B, T, Rank>(backend, extents);
  }
}

// Scratch in the backend's memory. Allocates.
template <class B>
WorkspaceOn<B> make_workspace(const B& backend, std::size_t bytes) {
  if constexpr (HostBackend<B>) {
    return WorkspaceOn<B>(bytes);
  } else {
    return backend.make_workspace(bytes);
  }
}

// A tensor that a layer keeps, in the backend's memory: itself, or a copy that is waited for.
template <HostBackend B, class T, int Rank>
Tensor<T, Rank> move_to(const B&, Tensor<T, Rank>&& tensor) {
  return std::move(tensor);
}
template <class B, class T, int Rank>
requires B::is_device Tensor<T, Rank, space_of<B>> move_to(const B& backend, Tensor<T, Rank>&& tensor) {
  return tensor.empty() ? Tensor<T, Rank, space_of<B>>()
                        : Tensor<T, Rank, space_of<B>>(backend, View<const T, Rank>(tensor));
}

// A view for the checks of shapes, which look at extents, strides and addresses: a device's as if it were the host's.
template <class T, int Rank>
HEED_INLINE const View<T, Rank>& for_check(const View<T, Rank>& view) noexcept {
  return view;
}
template <class T, int Rank, class Space>
HEED_INLINE View<T, Rank> for_check(const View<T, Rank, Space>& view) noexcept {
  Index extents[Rank];
  Index strides[Rank];
  for (int axis = 0; axis < Rank; ++axis) {
    extents[axis] = view.extent(axis);
    strides[axis] = view.stride(axis);
  }
  return {view.data_handle(), extents, strides};
}

// A view of what a door is handed as output, in the backend's memory.
template <class B, class Out>
HEED_INLINE auto output_on(const B&, Out&& out) noexcept {
  static_assert(std::is_same_v<typename std::remove_cvref_t<Out>::space_type, space_of<B>>,
                "heed: the output lies in other memory than the backend works on");
  return output_view(out);
}

}  // namespace heed::inline HEED_ABI
