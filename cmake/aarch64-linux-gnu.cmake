# Toolchain: for Linux on 64-bit ARM, by Debian's cross compiler, run by qemu (apt-get install g++-aarch64-linux-gnu
# qemu-user). What heed stands on is headers alone, so that the host's serve; of libraries the host's must not be found.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)

# Last in the search: /usr/include has the host's C library too. CMake takes it for one of the compiler's own folders then,
# and does not put it first.
set(CMAKE_CXX_FLAGS_INIT "-idirafter /usr/include")
# The one package that Debian keeps in a folder of the host's architecture.
set(xsimd_DIR "/usr/lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu/cmake/xsimd" CACHE PATH "")
