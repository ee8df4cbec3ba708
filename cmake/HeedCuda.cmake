# heed::cuda, for .cu files that include heed/cuda.hpp, and what heed's own .cu files are compiled with.
#
# HEED_CUDA: AUTO makes the target where a CUDA toolkit is found; ON insists on one, and compiles heed's own tests and
# examples of it, which takes minutes; OFF does not look. As a part of another project heed does not look unless told to.
if(PROJECT_IS_TOP_LEVEL)
  set(HEED_CUDA AUTO CACHE STRING "CUDA: AUTO, ON or OFF")
else()
  set(HEED_CUDA OFF CACHE STRING "CUDA: AUTO, ON or OFF")
endif()
set_property(CACHE HEED_CUDA PROPERTY STRINGS AUTO ON OFF)

# Nothing is made where the host's compiler is not one of nvcc's, or makes code for another machine.
set(heed_problem "HEED_CUDA is OFF")
if(HEED_CUDA AND NOT CMAKE_CROSSCOMPILING)
  heed_find_cuda(heed_problem)
  if(heed_problem AND NOT HEED_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "${heed_problem}")
  endif()
endif()
heed_add_component(cuda CUDA::cudart)

# heed's tests and examples in CUDA. In all other builds the same kernels run under the host executor.
set(heed_compiles_cuda OFF)
if(TARGET heed::cuda AND NOT HEED_CUDA STREQUAL "AUTO" AND (HEED_BUILD_TESTS OR HEED_BUILD_EXAMPLES))
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90")  # sm_80, sm_90, and PTX of 90 for those to come
  endif()
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  enable_language(CUDA)
  set(heed_compiles_cuda ON)
endif()
