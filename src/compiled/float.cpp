#include "kernels.hpp"

namespace heed::inline HEED_LIBRARY {

template const KernelTable<float>& HEED_LEVEL_KERNELS<float>() noexcept;

}  // namespace heed::inline HEED_LIBRARY
