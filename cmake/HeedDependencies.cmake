# What heed stands on. Used by the build and by the installed package alike, so that both ask for the same versions.
#
# Each macro sets the variable it is given to what is wrong, or to an empty string. Versions are compared here and not by
# find_package: xsimd's and Eigen's version files accept one major version only, so that asking for 8.1 refuses 14.
#
# Known to work, because the tests were run with them: xsimd 8.1, 9.0, 10.0, 11.2, 12.1, 13.2 and 14.3; Eigen 3.4.0 and
# 5.0.1; nlohmann_json 3.11; oneTBB 2021.8.

# Sets heed_xsimd_include_dirs too. Only those of xsimd's target are used: Debian 12's asks to be linked with a library
# xtl, which is neither needed nor installed with it.
macro(heed_find_xsimd problem)
  set(${problem} "")
  set(heed_xsimd_target xsimd::xsimd)
  if(NOT TARGET xsimd::xsimd)
    find_package(xsimd CONFIG QUIET)
    set(heed_xsimd_target xsimd)  # installed, xsimd has no namespace
    if(NOT xsimd_FOUND)
      set(${problem} "heed needs xsimd 8.1 or newer, and found none (Debian, Ubuntu: apt-get install libxsimd-dev)")
    elseif(xsimd_VERSION VERSION_LESS 8.1)
      set(${problem} "heed needs xsimd 8.1 or newer, and found ${xsimd_VERSION} in ${xsimd_DIR}")
    endif()
  endif()
  if(NOT ${problem})
    get_target_property(heed_xsimd_include_dirs ${heed_xsimd_target} INTERFACE_INCLUDE_DIRECTORIES)
  endif()
endmacro()

macro(heed_find_eigen problem)
  set(${problem} "")
  if(NOT TARGET Eigen3::Eigen)
    find_package(Eigen3 CONFIG QUIET)
    if(NOT Eigen3_FOUND)
      set(${problem} "heed needs Eigen 3.4 or newer, and found none (Debian, Ubuntu: apt-get install libeigen3-dev)")
    elseif(Eigen3_VERSION VERSION_LESS 3.4)
      set(${problem} "heed needs Eigen 3.4 or newer, and found ${Eigen3_VERSION} in ${Eigen3_DIR}")
    endif()
  endif()
endmacro()

macro(heed_find_io problem)
  set(${problem} "")
  if(NOT TARGET nlohmann_json::nlohmann_json)
    find_package(nlohmann_json CONFIG QUIET)
    if(NOT nlohmann_json_FOUND)
      set(${problem} "heed::io needs nlohmann_json, and found none (Debian, Ubuntu: apt-get install nlohmann-json3-dev)")
    endif()
  endif()
endmacro()

macro(heed_find_openmp problem)
  set(${problem} "")
  if(NOT TARGET OpenMP::OpenMP_CXX)
    find_package(OpenMP QUIET COMPONENTS CXX)
    if(NOT OpenMP_CXX_FOUND)
      set(${problem} "heed::openmp needs a compiler with OpenMP (Debian, Ubuntu, for clang: apt-get install libomp-dev)")
    endif()
  endif()
endmacro()

# Before 2021 oneTBB was TBB, whose headers C++20 does not accept.
macro(heed_find_tbb problem)
  set(${problem} "")
  if(NOT TARGET TBB::tbb)
    find_package(TBB CONFIG QUIET COMPONENTS tbb)
    if(NOT TBB_FOUND)
      set(${problem} "heed::tbb needs oneTBB 2021 or newer, and found none (Debian, Ubuntu: apt-get install libtbb-dev)")
    elseif(TBB_VERSION VERSION_LESS 2021)
      set(${problem} "heed::tbb needs oneTBB 2021 or newer, and found ${TBB_VERSION} in ${TBB_DIR}")
    endif()
  endif()
endmacro()

# CUDA 12 is the first whose nvcc compiles C++20.
macro(heed_find_cuda problem)
  set(${problem} "")
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND)
    set(${problem} "heed::cuda needs a CUDA toolkit of 12 or newer, and found none")
  elseif(CUDAToolkit_VERSION VERSION_LESS 12)
    set(${problem} "heed::cuda needs a CUDA toolkit of 12 or newer, and found ${CUDAToolkit_VERSION}")
  endif()
endmacro()
