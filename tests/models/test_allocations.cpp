// Replaces operator new for the models' tests.
#define HEED_TEST_COUNT_ALLOCATIONS
#include "support/allocation_counter.hpp"
