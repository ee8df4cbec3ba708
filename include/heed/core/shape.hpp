// Checking shapes at a door: the one place that says "expected [2, 128, 2, 64] (batch, seq, kv heads, head dim), got
// …".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "heed/core/view.hpp"
#include "heed/error.hpp"

namespace heed {

// Expected extent of one axis and its name; `any` takes whatever comes.
struct Axis {
  const char* name;
  Index extent;
};
inline constexpr Index any = -1;

namespace detail {

// A view's shape without its type, so that the checks are compiled once.
struct ShapeView {
  int rank;
  Index extents[6];
  Index strides[6];

  template <class T, int Rank, class Space>
  HEED_INLINE ShapeView(const View<T, Rank, Space>& view) noexcept : rank(Rank), extents{}, strides{} {
    static_assert(Rank <= 6);
    for (int axis = 0; axis < Rank; ++axis) {
      extents[axis] = view.extent(axis);
      strides[axis] = view.stride(axis);
    }
  }
};

HEED_INLINE void append_extents(Problem& problem, const ShapeView& shape) noexcept {
  problem.append("[");
  for (int axis = 0; axis < shape.rank; ++axis) problem.append(axis > 0 ? ", " : "").append(shape.extents[axis]);
  problem.append("]");
}

}  // namespace detail
}  // namespace heed

namespace heed::inline HEED_ABI {

// "heed: <door>: <tensor>: " to begin an error text with.
HEED_RARE inline Problem problem_at(ErrorKind kind, const char* door, const char* tensor) noexcept {
  Problem problem(kind, "heed: ");
  return problem.append(door).append(": ").append(tensor).append(": ");
}

namespace impl {

enum class Access { input, output };

inline Problem check_shape(const char* door, const char* tensor, const detail::ShapeView& shape,
                           std::initializer_list<Axis> axes, Access access) noexcept {
  int position = 0;
  bool fits = shape.rank == static_cast<int>(axes.size());
  for (const Axis& axis : axes) {
    if (fits && axis.extent != any && axis.extent != shape.extents[position]) fits = false;
    if (fits && shape.extents[position] < 0) fits = false;
    ++position;
  }
  if (!fits) {
    Problem problem = problem_at(ErrorKind::shape, door, tensor);
    problem.append("expected [");
    const char* comma = "";
    for (const Axis& axis : axes) {
      problem.append(comma);
      if (axis.extent == any) {
        problem.append("*");
      } else {
        problem.append(axis.extent);
      }
      comma = ", ";
    }
    problem.append("] (");
    comma = "";
    for (const Axis& axis : axes) {
      problem.append(comma).append(axis.name);
      comma = ", ";
    }
    problem.append("), got ");
    detail::append_extents(problem, shape);
    return problem;
  }

  const Axis* names = axes.begin();
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    const Index extent = shape.extents[axis];
    const Index stride = shape.strides[axis];
    if (extent == 0) return {};
    if (extent == 1) continue;
    const char* fault = nullptr;
    if (axis == shape.rank - 1 && stride != 1) fault = "the last axis must be contiguous (stride 1)";
    if (stride < 0) fault = "a stride must not be negative";
    if (stride == 0 && access == Access::output) fault = "an output must not repeat elements (stride 0)";
    if (fault != nullptr) {
      Problem problem = problem_at(ErrorKind::shape, door, tensor);
      return problem.append(fault).append(", got stride ").append(stride).append(" on ").append(names[axis].name);
    }
  }
  return {};
}

}  // namespace impl

// Checks extents and strides of a tensor that is read. Returns what is wrong, or no problem.
template <class T, int Rank, class Space>
Problem check_input(const char* door, const char* tensor, const View<T, Rank, Space>& view,
                    std::initializer_list<Axis> axes) noexcept {
  return impl::check_shape(door, tensor, view, axes, impl::Access::input);
}

// The same for a tensor that is written: no axis may repeat elements.
template <class T, int Rank, class Space>
Problem check_output(const char* door, const char* tensor, const View<T, Rank, Space>& view,
                     std::initializer_list<Axis> axes) noexcept {
  return impl::check_shape(door, tensor, view, axes, impl::Access::output);
}

namespace impl {

// A view in bytes, without its type.
struct ByteView {
  std::uintptr_t begin;
  int rank;
  Index element;  // its size
  Index extents[6];
  Index strides[6];  // where an extent is 1: 0

  template <class T, int Rank, class Space>
  explicit ByteView(const View<T, Rank, Space>& view) noexcept
      : begin(reinterpret_cast<std::uintptr_t>(view.data_handle())), rank(Rank), element(sizeof(T)) {
    static_assert(Rank <= 6);
    for (int axis = 0; axis < Rank; ++axis) {
      extents[axis] = view.extent(axis);
      strides[axis] = extents[axis] > 1 ? view.stride(axis) * element : 0;
    }
  }
  // The bytes from the first to behind the last, of the axes whose stride is not a multiple of `period`.
  Index span(Index period) const noexcept {
    Index bytes = element;
    for (int axis = 0; axis < rank; ++axis) {
      if (strides[axis] % period != 0) bytes += (extents[axis] - 1) * strides[axis];
    }
    return bytes;
  }
};

// Modulo `period` every address of a view lies in [begin, begin + span): true if these parts of the period are apart.
inline bool apart_modulo(const ByteView& a, const ByteView& b, Index period) noexcept {
  const auto modulus = static_cast<std::uintptr_t>(period);
  const auto distance = static_cast<Index>((b.begin % modulus + modulus - a.begin % modulus) % modulus);
  return a.span(period) <= distance && b.span(period) <= period - distance;
}

inline bool overlap_bytes(const ByteView& a, const ByteView& b) noexcept {
  constexpr Index no_period = (std::numeric_limits<Index>::max)();
  if (a.begin + static_cast<std::uintptr_t>(a.span(no_period)) <= b.begin) return false;
  if (b.begin + static_cast<std::uintptr_t>(b.span(no_period)) <= a.begin) return false;
  for (const ByteView* view : {&a, &b}) {
    for (int axis = 0; axis < view->rank; ++axis) {
      if (view->strides[axis] > 0 && apart_modulo(a, b, view->strides[axis])) return false;
    }
  }
  return true;
}

}  // namespace impl

// True if the two views may share an element. Views of one buffer that lie side by side in its rows (columns 0 … 3 and
// 4 … 7 of a matrix, queries and keys of one packed projection) share none; of views that interleave in another way it
// is enough that the ranges of their addresses meet.
template <class T, int RankA, class U, int RankB, class Space>
bool overlap(const View<T, RankA, Space>& a, const View<U, RankB, Space>& b) noexcept {
  return !a.empty() && !b.empty() && impl::overlap_bytes(impl::ByteView(a), impl::ByteView(b));
}

// An output that must not share memory with an input.
template <class T, int RankA, class U, int RankB, class Space>
Problem check_disjoint(const char* door, const View<T, RankA, Space>& out, const View<U, RankB, Space>& input,
                       const char* input_name) noexcept {
  if (!overlap(out, input)) return {};
  return problem_at(ErrorKind::shape, door, "out").append("must not overlap ").append(input_name);
}

// The same memory seen with other strides would be read after it was written; exactly the same view is fine.
template <class T, int Rank, class Space>
Problem check_in_place(const char* door, const View<T, Rank, Space>& out, const View<const T, Rank, Space>& input,
                       const char* input_name) noexcept {
  bool same = out.data_handle() == input.data_handle();
  for (int axis = 0; axis < Rank; ++axis)
    same = same && (out.extent(axis) <= 1 || out.stride(axis) == input.stride(axis));
  return same ? Problem() : check_disjoint(door, out, input, input_name);
}

// The first problem of a list of checks: return first_problem(check_a(…), check_b(…)).
template <class... Problems>
Problem first_problem(const Problem& first, const Problems&... rest) noexcept {
  if constexpr (sizeof...(rest) == 0) {
    return first;
  } else {
    return first ? first : first_problem(rest...);
  }
}

}  // namespace heed::inline HEED_ABI
