# How heed's own tests and examples are compiled. Nothing here reaches a user of the library.

set(HEED_ARCH "" CACHE STRING "Instruction set of heed's tests and examples, as for -march: native, x86-64-v3, ...")
set(HEED_SANITIZE "" CACHE STRING "Sanitizers for heed's tests and examples: a list, e.g. address;undefined")
set(HEED_TEST_SOURCES "" CACHE STRING "Only the test sources that match this regular expression: ^ops/, layers/test_linear, ...")
set(HEED_TEST_SOURCES_LEFT_OUT "" CACHE STRING "Not the test sources that match this regular expression")
option(HEED_WARNINGS_AS_ERRORS "A warning in heed's tests or examples ends the build" OFF)
option(HEED_WITHOUT_EXCEPTIONS "Compile with -fno-exceptions -fno-rtti, and only the tests that can be" OFF)

# The flags alone, for what tests a header against exactly one of heed's targets.
add_library(heed_flags INTERFACE)
if(MSVC)
  target_compile_options(heed_flags INTERFACE /W4 $<$<BOOL:${HEED_WARNINGS_AS_ERRORS}>:/WX>)
  if(HEED_ARCH)
    target_compile_options(heed_flags INTERFACE /arch:${HEED_ARCH})
  endif()
else()
  target_compile_options(heed_flags INTERFACE
    -Wall -Wextra -Wconversion -Wshadow $<$<BOOL:${HEED_WARNINGS_AS_ERRORS}>:-Werror>)
  if(HEED_ARCH)
    # g++ 12 takes recent processors for a znver3 when it tunes for "native", which makes some products twice as slow.
    target_compile_options(heed_flags INTERFACE -march=${HEED_ARCH} -mtune=generic)
  endif()
  if(HEED_SANITIZE)
    list(JOIN HEED_SANITIZE "," heed_sanitize)
    target_compile_options(heed_flags INTERFACE
      -fsanitize=${heed_sanitize} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(heed_flags INTERFACE -fsanitize=${heed_sanitize})
    # Each call that is forced inline would bring its checks along: kernels then take four times as long to compile.
    target_compile_definitions(heed_flags INTERFACE HEED_INLINE=inline)
  endif()
  if(HEED_WITHOUT_EXCEPTIONS)
    target_compile_options(heed_flags INTERFACE -fno-exceptions -fno-rtti)
  endif()
endif()

# Flags and all of heed, for tests and examples.
find_package(Threads REQUIRED)
add_library(heed_development INTERFACE)
target_link_libraries(heed_development INTERFACE heed_flags heed::heed Threads::Threads)
foreach(component IN LISTS heed_components)
  target_link_libraries(heed_development INTERFACE heed::${component})
endforeach()

# The tests must not shrink silently on a machine that lacks something.
if(HEED_BUILD_TESTS AND NOT TARGET heed::eigen)
  message(FATAL_ERROR "heed's tests need Eigen (Debian, Ubuntu: apt-get install libeigen3-dev), or configure with "
    "-DHEED_BUILD_TESTS=OFF")
endif()
if(NOT TARGET heed::io)
  message(FATAL_ERROR "heed's tests and examples need nlohmann_json (Debian, Ubuntu: apt-get install "
    "nlohmann-json3-dev), or configure with -DHEED_BUILD_TESTS=OFF -DHEED_BUILD_EXAMPLES=OFF")
endif()
find_package(CLI11 CONFIG QUIET)
if(NOT CLI11_FOUND)
  message(FATAL_ERROR "heed's tests and examples need CLI11 (Debian, Ubuntu: apt-get install libcli11-dev), or "
    "configure with -DHEED_BUILD_TESTS=OFF -DHEED_BUILD_EXAMPLES=OFF")
endif()
