// Compiled by the tests heed.refused.* with flags that heed refuses; each must give one message that says what to do.
#include <heed/heed.hpp>

int main() {}
