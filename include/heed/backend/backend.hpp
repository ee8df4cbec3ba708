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
// Rules for hooks: arguments are checked; noexcept; no allocation; no call of another operation through the backend (a
// composite written for `const Reference&` would lose the fast path: composites live in ops/ and layers/).
#pragma once

#include <concepts>

#include "heed/backend/reference.hpp"

namespace heed::inline HEED_ABI {

template <class B>
concept Backend = std::derived_from<B, Reference>;

}  // namespace heed::inline HEED_ABI
