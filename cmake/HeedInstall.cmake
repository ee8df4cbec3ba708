# Headers, the CMake package `heed`, heed.pc and the printers for gdb. None of it depends on the machine, hence share/;
# but for the library heed::compiled, where it is built.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(heed_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/heed")

install(DIRECTORY include/heed DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp")

# One file a component, so that a user without, say, Eigen can load the rest.
install(TARGETS heed EXPORT heed-heed INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT heed-heed NAMESPACE heed:: DESTINATION "${heed_package_dir}")
foreach(component IN LISTS heed_components)
  install(TARGETS heed_${component} EXPORT heed-${component})
  install(EXPORT heed-${component} NAMESPACE heed:: DESTINATION "${heed_package_dir}")
endforeach()

configure_package_config_file(cmake/heedConfig.cmake.in "${PROJECT_BINARY_DIR}/heedConfig.cmake"
  INSTALL_DESTINATION "${heed_package_dir}" NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
set(heed_any_machine ARCH_INDEPENDENT)
if(HEED_BUILD_COMPILED)
  set(heed_any_machine "")
endif()
write_basic_package_version_file("${PROJECT_BINARY_DIR}/heedConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion ${heed_any_machine})
install(FILES
  "${PROJECT_BINARY_DIR}/heedConfig.cmake" "${PROJECT_BINARY_DIR}/heedConfigVersion.cmake" cmake/HeedDependencies.cmake
  DESTINATION "${heed_package_dir}")

configure_file(cmake/heed.pc.in "${PROJECT_BINARY_DIR}/heed.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/heed.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")

if(HEED_BUILD_COMPILED)
  configure_file(cmake/heed-compiled.pc.in "${PROJECT_BINARY_DIR}/heed-compiled.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/heed-compiled.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()

install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/heed")
install(FILES tools/gdb/heed_printers.py DESTINATION "${CMAKE_INSTALL_DATADIR}/heed/gdb")

# A Debian package: cpack -G DEB, in the build folder.
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_PACKAGE_NAME libheed-dev)
  set(CPACK_PACKAGE_CONTACT "the heed authors")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_GENERATOR DEB)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  if(NOT HEED_BUILD_COMPILED)
    set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
  endif()
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libeigen3-dev (>= 3.4), libxsimd-dev (>= 8.1)")
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libtbb-dev (>= 2021), nlohmann-json3-dev")
  include(CPack)
endif()
