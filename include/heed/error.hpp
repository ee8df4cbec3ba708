// Problems found at a door, and what becomes of them: an exception, or, without exceptions, a call of the handler.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "heed/config.hpp"

#if HEED_EXCEPTIONS
#include <stdexcept>
#endif

namespace heed {

enum class ErrorKind {
  none,
  shape,      // a tensor's extents or strides do not fit
  option,     // an option's value is out of its range, or options contradict each other
  workspace,  // the caller's scratch memory is too small
  capacity,   // a cache has no room for what should be appended
  format,     // a file is damaged, or does not hold what was asked for
  system,     // the operating system refused (open, map, write)
};

}  // namespace heed

namespace heed::inline HEED_ABI::impl {

// What Problem's members do. Functions of their own, since a thousand places call them that are never reached: inlined
// there they were a quarter of what a layer takes to compile. In this namespace, since units must not share them.
//
// Adds to a text of this length, returns the new one; what does not fit is cut off.
HEED_RARE inline std::size_t append_text(char* to, std::size_t length, std::size_t capacity,
                                         const char* text) noexcept {
  while (*text != '\0' && length + 1 < capacity) to[length++] = *text++;
  to[length] = '\0';
  return length;
}
HEED_RARE inline std::size_t append_text(char* to, std::size_t length, std::size_t capacity,
                                         std::ptrdiff_t value) noexcept {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%td", value);
  return append_text(to, length, capacity, digits);
}
HEED_RARE inline std::size_t append_text(char* to, std::size_t length, std::size_t capacity, double value) noexcept {
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.9g", value);
  return append_text(to, length, capacity, digits);
}

}  // namespace heed::inline HEED_ABI::impl

namespace heed {

// What is wrong, as text in a fixed buffer: making, copying and returning a Problem never allocates and never throws,
// so every door has a noexcept check_x() that real-time code can ask first.
class Problem {
 public:
  HEED_INLINE Problem() noexcept { text_[0] = '\0'; }
  HEED_INLINE Problem(ErrorKind kind, const char* text) noexcept : kind_(kind) { append(text); }

  // True if there is a problem.
  HEED_INLINE explicit operator bool() const noexcept { return kind_ != ErrorKind::none; }
  HEED_INLINE ErrorKind kind() const noexcept { return kind_; }
  HEED_INLINE const char* text() const noexcept { return text_; }

  // Adds to the text; what does not fit is cut off.
  HEED_INLINE Problem& append(const char* text) noexcept {
    length_ = impl::append_text(text_, length_, capacity, text);
    return *this;
  }
  HEED_INLINE Problem& append(std::ptrdiff_t value) noexcept {
    length_ = impl::append_text(text_, length_, capacity, value);
    return *this;
  }
  HEED_INLINE Problem& append_number(double value) noexcept {
    length_ = impl::append_text(text_, length_, capacity, value);
    return *this;
  }

 private:
  static constexpr std::size_t capacity = 500;
  ErrorKind kind_ = ErrorKind::none;
  std::size_t length_ = 0;
  char text_[capacity];
};

// Called with the problem when there are no exceptions; must not return. The default prints the text and aborts.
using ErrorHandler = void (*)(const Problem&);

namespace detail {
inline void print_and_abort(const Problem& problem) {
  std::fprintf(stderr, "%s\n", problem.text());
  std::abort();
}
inline ErrorHandler error_handler = print_and_abort;
}  // namespace detail

// Sets what happens on an error in code built with -fno-exceptions; returns the handler in force before. Not
// thread-safe.
inline ErrorHandler set_error_handler(ErrorHandler handler) {
  const ErrorHandler before = detail::error_handler;
  detail::error_handler = handler;
  return before;
}

#if HEED_EXCEPTIONS
// The base of every exception heed throws. what() begins with "heed: ".
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class ShapeError : public Error {
 public:
  using Error::Error;
};
class OptionError : public Error {
 public:
  using Error::Error;
};
class WorkspaceError : public Error {
 public:
  using Error::Error;
};
class CapacityError : public Error {
 public:
  using Error::Error;
};
class FormatError : public Error {
 public:
  using Error::Error;
};
class SystemError : public Error {
 public:
  using Error::Error;
};
#endif

}  // namespace heed

namespace heed::inline HEED_ABI {

// Throws the exception of the problem's kind; without exceptions calls the handler. Does not return.
[[noreturn]] HEED_RARE inline void raise(const Problem& problem) {
#if HEED_EXCEPTIONS
  switch (problem.kind()) {
    case ErrorKind::shape: throw ShapeError(problem.text());
    case ErrorKind::option: throw OptionError(problem.text());
    case ErrorKind::workspace: throw WorkspaceError(problem.text());
    case ErrorKind::capacity: throw CapacityError(problem.text());
    case ErrorKind::format: throw FormatError(problem.text());
    case ErrorKind::system: throw SystemError(problem.text());
    case ErrorKind::none: break;
  }
  throw Error(problem.text());
#else
  detail::error_handler(problem);
  std::abort();  // the handler must not return
#endif
}

// The last line of every door's check.
inline void raise_if(const Problem& problem) {
  if (problem) raise(problem);
}

}  // namespace heed::inline HEED_ABI
