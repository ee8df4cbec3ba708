// Views as users have them: not aligned, with gaps between rows, and nothing around them that may be touched.
#pragma once

#include <cstring>
#include <limits>

#include "support/compare.hpp"

namespace test {

// A copy of a tensor inside a larger buffer: begins one element off alignment, three elements between the rows of every
// axis, NaN everywhere else. What reads outside the view computes NaN, what writes there is seen by intact().
template <class T, int Rank>
class Strided {
 public:
  explicit Strided(heed::View<const T, Rank> source) {
    Index extents[Rank];
    Index strides[Rank];
    Index stride = 1;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      extents[axis] = source.extent(axis);
      strides[axis] = stride;
      stride = stride * (extents[axis] > 0 ? extents[axis] : 1) + 3;
    }
    buffer_ = heed::Tensor<T, 1>({stride + 2 * margin + 1});
    buffer_.fill(canary());
    view_ = heed::View<T, Rank>(buffer_.data() + margin + 1, extents, strides);
    for_each_element([](const T& from, T& to) { to = from; }, source, view_);
  }
  explicit Strided(const heed::Tensor<T, Rank>& source) : Strided(source.view()) {}

  heed::View<T, Rank> view() { return view_; }
  heed::View<const T, Rank> view() const { return view_; }

  // Is everything outside the view as it was?
  bool intact() const {
    heed::Tensor<T, 1> rest = buffer_;
    Index strides[Rank];
    Index extents[Rank];
    for (int axis = 0; axis < Rank; ++axis) {
      strides[axis] = view_.stride(axis);
      extents[axis] = view_.extent(axis);
    }
    const heed::View<T, Rank> inside(rest.data() + margin + 1, extents, strides);
    for_each_element([](T& element) { element = canary(); }, inside);
    bool same = true;
    for (const T& element : rest.span()) same = same && same_bits_of(element, canary());
    return same;
  }

 private:
  static constexpr Index margin = 16;
  static T canary() {
    if constexpr (std::is_integral_v<T>) {
      return std::numeric_limits<T>::max();
    } else {
      return heed::narrow<T>(std::numeric_limits<heed::accumulator_t<T>>::quiet_NaN());
    }
  }

  heed::Tensor<T, 1> buffer_;
  heed::View<T, Rank> view_;
};

// A view of `count` times the same tensor: a new first axis of stride 0.
template <class T, int Rank>
heed::View<const T, Rank + 1> repeated(Index count, heed::View<const T, Rank> view) {
  Index extents[Rank + 1] = {count};
  Index strides[Rank + 1] = {0};
  for (int axis = 0; axis < Rank; ++axis) {
    extents[axis + 1] = view.extent(axis);
    strides[axis + 1] = view.stride(axis);
  }
  return {view.data_handle(), extents, strides};
}

}  // namespace test
