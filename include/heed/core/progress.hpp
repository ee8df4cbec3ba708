// Progress: a caller's function that long runs tell how far they are, and that may end them.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>

#include "heed/core/view.hpp"

namespace heed {

// A reference to a callable bool(Index done, Index total): true goes on, false ends the run at this point. It must
// outlive the call it is given to (a lambda written in the call does) and must not throw. Default-made: nobody asks.
class Progress {
 public:
  HEED_INLINE constexpr Progress() noexcept = default;

  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, Progress> && std::is_invocable_r_v<bool, F&, Index, Index>) HEED_INLINE
      Progress(F&& function)
  noexcept
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, Index done, Index total) -> bool {
          return (*static_cast<std::remove_reference_t<F>*>(object))(done, total);
        }) {}

  HEED_INLINE bool given() const noexcept { return call_ != nullptr; }
  // Whether to go on.
  HEED_INLINE bool operator()(Index done, Index total) const noexcept {
    return call_ == nullptr || call_(object_, done, total);
  }

 private:
  void* object_ = nullptr;
  bool (*call_)(void*, Index, Index) = nullptr;
};

}  // namespace heed
