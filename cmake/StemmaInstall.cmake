# Usage: include()d when STEMMA_INSTALL is on; what find_package(stemma) needs.
include(CMakePackageConfigHelpers)

install(TARGETS stemma_core EXPORT stemma-targets FILE_SET HEADERS)
if(TARGET stemma)
  install(TARGETS stemma)
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/stemma")
install(EXPORT stemma-targets NAMESPACE stemma:: DESTINATION "${package_dir}")
configure_package_config_file(cmake/stemma-config.cmake.in
  "${PROJECT_BINARY_DIR}/stemma-config.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/stemma-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/stemma-config.cmake"
              "${PROJECT_BINARY_DIR}/stemma-config-version.cmake"
        DESTINATION "${package_dir}")
