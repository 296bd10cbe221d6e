# Usage: include()d when STEMMA_BUILD_FUZZ is on; every fuzz/<name>_fuzz.cc becomes <name>_fuzz.

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "stemma: fuzz targets need clang; use the fuzz preset")
endif()

target_compile_options(stemma_core PRIVATE -fsanitize=fuzzer-no-link)
target_compile_options(stemma_capi PRIVATE -fsanitize=fuzzer-no-link)
file(GLOB fuzz_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/fuzz/*_fuzz.cc")
foreach(source IN LISTS fuzz_sources)
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  stemma_configure_target(${name})
  target_include_directories(${name} PRIVATE
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/fuzz")
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE stemma_capi stemma::core)
endforeach()
