#include "kernels.hpp"

namespace heed::inline HEED_LIBRARY {

template const KernelTable<float16>& HEED_LEVEL_KERNELS<float16>() noexcept;

}  // namespace heed::inline HEED_LIBRARY
