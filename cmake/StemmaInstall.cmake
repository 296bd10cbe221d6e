# Usage: include()d when STEMMA_INSTALL is on; what find_package(stemma), pkg-config and `cpack`
# need.
#
# Five parts, which are five Debian packages: `runtime` (libstemma.so.0), `tiers`
# (libstemma_tiers.so.0), `mover` (libstemma_mover.so.0), `development` (headers, static libraries, CMake and pkg-config files) and
# `program`.
include(CMakePackageConfigHelpers)

install(TARGETS stemma_core stemma_shared stemma_static EXPORT stemma-targets
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE COMPONENT development
  FILE_SET HEADERS COMPONENT development)
# Tiers are exported one by one: what needs a library that is not there does not take the others
# with it.
set(stemma_tier_parts "")
foreach(part IN ITEMS tier tier_disk tier_shared tier_redis tier_seal)
  if(TARGET stemma_${part})
    list(APPEND stemma_tier_parts ${part})
    install(TARGETS stemma_${part} EXPORT stemma-${part}-targets
      ARCHIVE COMPONENT development
      FILE_SET HEADERS COMPONENT development)
  endif()
endforeach()
if(TARGET stemma_tiers_shared)
  list(APPEND stemma_tier_parts tiers)
  install(TARGETS stemma_tiers_shared EXPORT stemma-tiers-targets
    LIBRARY COMPONENT tiers NAMELINK_COMPONENT development
    FILE_SET HEADERS COMPONENT development)
endif()
if(TARGET stemma_mover_shared)
  list(APPEND stemma_tier_parts mover)
  install(TARGETS stemma_mover_shared EXPORT stemma-mover-targets
    LIBRARY COMPONENT mover NAMELINK_COMPONENT development
    FILE_SET HEADERS COMPONENT development)
endif()
if(TARGET stemma)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(libraries "${CMAKE_INSTALL_LIBDIR}")
  else()
    set(libraries "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  endif()
  set_target_properties(stemma PROPERTIES INSTALL_RPATH "${libraries};${libraries}/stemma")
  install(TARGETS stemma RUNTIME COMPONENT program)
  # A llama.cpp that scripts/get-llama fetched goes with the program; an own one stays where it is.
  if(STEMMA_LLAMA_FOLDER)
    file(GLOB llama_libraries "${STEMMA_LLAMA_BACKENDS}/*.so")
    # Those for GPUs may come after this was configured. They are in no package: they are compiled
    # for the GPUs of this machine, and need libraries that no package of the system has.
    list(FILTER llama_libraries EXCLUDE REGEX "/libggml-(cuda|vulkan)\\.so$")
    install(DIRECTORY "${STEMMA_LLAMA_BACKENDS}/" DESTINATION "${CMAKE_INSTALL_LIBDIR}/stemma" COMPONENT gpu
            FILES_MATCHING PATTERN "libggml-cuda.so" PATTERN "libggml-vulkan.so")
    install(PROGRAMS ${llama_libraries} DESTINATION "${CMAKE_INSTALL_LIBDIR}/stemma" COMPONENT program)
    install(FILES "${STEMMA_LLAMA_FOLDER}/LICENSE" RENAME llama.cpp-copyright
            DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/stemma" COMPONENT program)
  elseif(STEMMA_LLAMA_FOUND)
    set_target_properties(stemma PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
endif()

# Whoever gets a part gets the licence with it.
foreach(part IN ITEMS runtime:libstemma0:stemma_shared tiers:libstemma-tiers0:stemma_tiers_shared
        mover:libstemma-mover0:stemma_mover_shared development:libstemma-dev:stemma_core program:stemma:stemma)
  string(REPLACE ":" ";" part "${part}")
  list(GET part 0 component)
  list(GET part 1 package)
  list(GET part 2 target)
  if(TARGET ${target})
    install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" RENAME copyright
            DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/${package}" COMPONENT ${component})
  endif()
endforeach()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/stemma")
foreach(part IN ITEMS "" ${stemma_tier_parts})
  string(REGEX REPLACE "^(.+)$" "-\\1" part "${part}")
  install(EXPORT stemma${part}-targets NAMESPACE stemma:: DESTINATION "${package_dir}"
          COMPONENT development)
endforeach()
configure_package_config_file(cmake/stemma-config.cmake.in
  "${PROJECT_BINARY_DIR}/stemma-config.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/stemma-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/stemma-config.cmake"
              "${PROJECT_BINARY_DIR}/stemma-config-version.cmake"
        DESTINATION "${package_dir}" COMPONENT development)

# The prefix is where the file lies, so that an unpacked archive works wherever it is.
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pkgconfig_prefix "${CMAKE_INSTALL_PREFIX}")
  set(pkgconfig_libdir "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(pkgconfig_includedir "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  file(RELATIVE_PATH to_prefix "/prefix/${pkgconfig_dir}" "/prefix")
  set(pkgconfig_prefix "\${pcfiledir}/${to_prefix}")
  set(pkgconfig_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(pkgconfig_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/stemma.pc.in "${PROJECT_BINARY_DIR}/stemma.pc" @ONLY)
set(pkgconfig_files "${PROJECT_BINARY_DIR}/stemma.pc")
if(TARGET stemma_tiers_shared)
  configure_file(cmake/stemma_tiers.pc.in "${PROJECT_BINARY_DIR}/stemma_tiers.pc" @ONLY)
  list(APPEND pkgconfig_files "${PROJECT_BINARY_DIR}/stemma_tiers.pc")
endif()
if(TARGET stemma_mover_shared)
  configure_file(cmake/stemma_mover.pc.in "${PROJECT_BINARY_DIR}/stemma_mover.pc" @ONLY)
  list(APPEND pkgconfig_files "${PROJECT_BINARY_DIR}/stemma_mover.pc")
endif()
install(FILES ${pkgconfig_files} DESTINATION "${pkgconfig_dir}" COMPONENT development)

if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME stemma)
  set(CPACK_PACKAGE_VENDOR "The Stemma authors")
  set(CPACK_PACKAGE_CONTACT "The Stemma authors <stemma@localhost>")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
  set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
  set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_COMPONENTS_ALL runtime development)
  set(development_depends "libstemma0 (= ${PROJECT_VERSION})")
  if(TARGET stemma_tiers_shared)
    list(APPEND CPACK_COMPONENTS_ALL tiers)
    string(APPEND development_depends ", libstemma-tiers0 (= ${PROJECT_VERSION})")
  endif()
  if(TARGET stemma_mover_shared)
    list(APPEND CPACK_COMPONENTS_ALL mover)
    string(APPEND development_depends ", libstemma-mover0 (= ${PROJECT_VERSION})")
  endif()
  if(TARGET stemma)
    list(APPEND CPACK_COMPONENTS_ALL program)
  endif()
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
    "${PROJECT_BINARY_DIR}" ${STEMMA_LLAMA_BACKENDS})
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libstemma0)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "${PROJECT_DESCRIPTION} - C library")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libstemma-dev)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_TIERS_PACKAGE_NAME libstemma-tiers0)
  set(CPACK_DEBIAN_TIERS_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_TIERS_PACKAGE_DEPENDS "libstemma0 (>= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_TIERS_DESCRIPTION "${PROJECT_DESCRIPTION} - tiers, C library")
  set(CPACK_DEBIAN_MOVER_PACKAGE_NAME libstemma-mover0)
  set(CPACK_DEBIAN_MOVER_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_MOVER_PACKAGE_DEPENDS "libstemma0 (>= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_MOVER_DESCRIPTION "${PROJECT_DESCRIPTION} - block mover, C library")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${development_depends}")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "${PROJECT_DESCRIPTION} - headers, C++ and C libraries")
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME stemma)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION utils)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "libstemma0 (>= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "${PROJECT_DESCRIPTION} - the program")
  include(CPack)
endif()
