# install(): headers, exported target, package configuration and version files.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_batchweave_config_folder "${CMAKE_INSTALL_DATADIR}/cmake/batchweave")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/batchweave" DESTINATION include FILES_MATCHING PATTERN "*.hpp")
install(TARGETS batchweave EXPORT batchweave_targets)
install(EXPORT batchweave_targets NAMESPACE batchweave:: FILE batchweaveTargets.cmake DESTINATION "${_batchweave_config_folder}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/batchweaveConfig.cmake.in" "${PROJECT_BINARY_DIR}/batchweaveConfig.cmake"
  INSTALL_DESTINATION "${_batchweave_config_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/batchweaveConfigVersion.cmake" COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/batchweaveConfig.cmake" "${PROJECT_BINARY_DIR}/batchweaveConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/BatchweaveDependencies.cmake" DESTINATION "${_batchweave_config_folder}")
