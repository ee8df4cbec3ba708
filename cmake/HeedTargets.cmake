# The library's targets. None of them carries a compile flag: -march, warnings and optimisation are the user's business.
#
#   heed::heed       heed/heed.hpp and everything it includes
#   heed::eigen      headers that include Eigen (never in heed.hpp)
#   heed::io         heed/io/*.hpp and heed/models/*.hpp, which include nlohmann_json
#   heed::openmp     heed/core/openmp_executor.hpp
#   heed::tbb        heed/core/tbb_executor.hpp
#   heed::cuda       heed/cuda.hpp (HeedCuda.cmake)
#   heed::compiled   heed/backend/compiled.hpp and its library (src/CMakeLists.txt), with HEED_BUILD_COMPILED
#
# Those between the first and the last exist where what they need is found; at the top of its own build heed insists on Eigen.

add_library(heed INTERFACE)
add_library(heed::heed ALIAS heed)
target_include_directories(heed INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_features(heed INTERFACE cxx_std_20)

heed_find_xsimd(heed_problem)
if(heed_problem)
  message(FATAL_ERROR "${heed_problem}")
endif()
target_include_directories(heed SYSTEM INTERFACE "$<BUILD_INTERFACE:${heed_xsimd_include_dirs}>")

set(heed_components "")

# heed_add_component(<name> <target that it needs>): heed::<name>, unless the search before has found a problem
macro(heed_add_component name needed)
  if(NOT heed_problem)
    add_library(heed_${name} INTERFACE)
    add_library(heed::${name} ALIAS heed_${name})
    set_target_properties(heed_${name} PROPERTIES EXPORT_NAME ${name})
    target_link_libraries(heed_${name} INTERFACE heed ${needed})
    list(APPEND heed_components ${name})
  endif()
endmacro()

heed_find_eigen(heed_problem)
if(heed_problem AND PROJECT_IS_TOP_LEVEL)
  message(FATAL_ERROR "${heed_problem}")
endif()
heed_add_component(eigen Eigen3::Eigen)

heed_find_io(heed_problem)
heed_add_component(io nlohmann_json::nlohmann_json)

heed_find_openmp(heed_problem)
heed_add_component(openmp OpenMP::OpenMP_CXX)

heed_find_tbb(heed_problem)
heed_add_component(tbb TBB::tbb)
