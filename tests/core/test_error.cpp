// Problem, the exceptions it becomes, and the handler.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <type_traits>

#include "heed/error.hpp"

namespace {

using heed::ErrorKind;
using heed::Problem;

template <class E>
void check_raises(ErrorKind kind) {
  const Problem problem(kind, "heed: door: tensor: text");
  bool exactly = false;
  try {
    heed::raise_if(problem);
  } catch (const heed::Error& error) {
    exactly = typeid(error) == typeid(E) && error.what() == std::string("heed: door: tensor: text");
  }
  CHECK(exactly);
}

void first_handler(const Problem&) {}
void second_handler(const Problem&) {}

}  // namespace

TEST_CASE("Problem: none is false, any other is true") {
  const Problem none;
  CHECK(!none);
  CHECK(none.kind() == ErrorKind::none);
  CHECK(none.text() == std::string());
  CHECK(Problem(ErrorKind::shape, "x"));
  static_assert(std::is_trivially_copyable_v<Problem>);
  static_assert(!std::is_convertible_v<Problem, bool>, "explicit");
  CHECK_NOTHROW(heed::raise_if(none));
}

TEST_CASE("Problem: texts of words, whole numbers and numbers") {
  Problem problem(ErrorKind::option, "a");
  problem.append(" b ").append(std::ptrdiff_t{-42}).append("|").append(std::numeric_limits<std::ptrdiff_t>::min());
  problem.append("|").append_number(0.1).append("|").append_number(-1e30).append("|");
  problem.append_number(std::numeric_limits<double>::infinity());
  CHECK(problem.text() == std::string("a b -42|-9223372036854775808|0.1|-1e+30|inf"));
  CHECK(problem.kind() == ErrorKind::option);
  const Problem copy = problem;
  problem.append("!");
  CHECK(copy.text() == std::string("a b -42|-9223372036854775808|0.1|-1e+30|inf"));
}

TEST_CASE("Problem: what does not fit is cut off") {
  const std::string line(150, 'x');
  Problem problem(ErrorKind::shape, "");
  for (int i = 0; i < 10; ++i) problem.append(line.c_str());
  CHECK(problem.text() == std::string(499, 'x'));
  problem.append(std::ptrdiff_t{1234567}).append_number(1.5);
  CHECK(problem.text() == std::string(499, 'x'));
  const std::string longer(2000, 'y');
  CHECK(Problem(ErrorKind::shape, longer.c_str()).text() == std::string(499, 'y'));
}

TEST_CASE("raise: each kind is its exception, all are heed::Error and std::runtime_error") {
  check_raises<heed::ShapeError>(ErrorKind::shape);
  check_raises<heed::OptionError>(ErrorKind::option);
  check_raises<heed::WorkspaceError>(ErrorKind::workspace);
  check_raises<heed::FormatError>(ErrorKind::format);
  check_raises<heed::SystemError>(ErrorKind::system);
  static_assert(std::is_base_of_v<std::runtime_error, heed::Error>);
  CHECK_THROWS_AS(heed::raise(Problem(ErrorKind::shape, "x")), std::runtime_error);
}

TEST_CASE("set_error_handler: returns the handler before") {
  const heed::ErrorHandler original = heed::set_error_handler(first_handler);
  const bool was_set = original != nullptr;
  const bool gave_first = heed::set_error_handler(second_handler) == first_handler;
  const bool gave_second = heed::set_error_handler(original) == second_handler;
  CHECK(was_set);
  CHECK(gave_first);
  CHECK(gave_second);
}
