// doctest's own code, compiled once for all the test programs and without optimisation: it is the slowest file here.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
