// What a door says when it refuses.
#pragma once

#include <string>

#include "heed/error.hpp"

namespace test {

// The text of the E that failing() throws: error_text<heed::ShapeError>([&] { heed::ops::linear(…); }).
template <class E, class F>
std::string error_text(F&& failing) {
  try {
    failing();
  } catch (const E& error) {
    return error.what();
  } catch (const heed::Error& error) {
    return std::string("(another type) ") + error.what();
  }
  return "(no error)";
}

}  // namespace test
