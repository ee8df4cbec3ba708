// The compiler's own vector intrinsics, included where it does not warn of them: g++ 12 and older take the deliberately
// undefined operands inside AVX-512's for a mistake (GCC bug 105593). So before any header that includes them, Eigen's
// among these.
#pragma once

#if defined(__SSE2__)
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#pragma GCC diagnostic pop
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
