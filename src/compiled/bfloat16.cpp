#include "kernels.hpp"

namespace heed::inline HEED_LIBRARY {

template const KernelTable<bfloat16>& HEED_LEVEL_KERNELS<bfloat16>() noexcept;

}  // namespace heed::inline HEED_LIBRARY
