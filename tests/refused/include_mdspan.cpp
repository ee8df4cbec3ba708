#include <heed/interop/mdspan.hpp>
