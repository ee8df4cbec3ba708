# Fails if heed/cuda.hpp includes Eigen, xsimd or a backend of the CPU.
file(WRITE "${SOURCE}" "#include <heed/cuda.hpp>\n")
execute_process(COMMAND "${NVCC}" -std=c++20 -M "-I${INCLUDE}" "${SOURCE}"
  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT output MATCHES "heed/cuda\\.hpp")
  message(FATAL_ERROR "nvcc -M failed: ${errors}")
endif()
string(REGEX MATCHALL "[^ \n]*(Eigen/|xsimd|heed/kernels/(cpu|simd)/|heed/backend/(cpu|simd|eigen)|heed/core/simd)[^ \n]*" found "${output}")
if(found)
  message(FATAL_ERROR "heed/cuda.hpp includes ${found}")
endif()
