// One set of tables for each instruction set, each in units of its own with their own flags (src/CMakeLists.txt).
#pragma once

#include "heed/kernels/compiled/table.hpp"

namespace heed::inline HEED_LIBRARY {

template <class T>
const KernelTable<T>& baseline_kernels() noexcept;
template <class T>
const KernelTable<T>& x86_64_v3_kernels() noexcept;
template <class T>
const KernelTable<T>& x86_64_v4_kernels() noexcept;

}  // namespace heed::inline HEED_LIBRARY
