# Headers, the CMake package `heed` and heed.pc. All of it is independent of the machine, hence share/ and not lib/.
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
write_basic_package_version_file("${PROJECT_BINARY_DIR}/heedConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${PROJECT_BINARY_DIR}/heedConfig.cmake" "${PROJECT_BINARY_DIR}/heedConfigVersion.cmake" cmake/HeedDependencies.cmake
  DESTINATION "${heed_package_dir}")

configure_file(cmake/heed.pc.in "${PROJECT_BINARY_DIR}/heed.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/heed.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")

install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/heed")
