// What an error says.
#pragma once

#include <string>

#include "heed/error.hpp"

namespace test {

// The text of the heed::Error that f throws; "no error" if it throws none.
template <class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const heed::Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace test
