#include "kernels.hpp"

namespace heed::inline HEED_LIBRARY {

template const KernelTable<double>& HEED_LEVEL_KERNELS<double>() noexcept;

}  // namespace heed::inline HEED_LIBRARY
