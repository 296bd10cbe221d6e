# Usage: include()d in developer mode; the `stemma` program and the examples.

stemma_glob(program_sources "src/cli/*.cc" "bench/*.cc" "bench/micro/*.cc")
if(EXISTS "${PROJECT_SOURCE_DIR}/src/cli/main.cc")
  add_executable(stemma ${program_sources})
  stemma_configure_target(stemma)
  target_include_directories(stemma PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  target_link_libraries(stemma PRIVATE stemma::core stemma::engine_paged)
  find_package(nlohmann_json 3.11 QUIET)
  if(nlohmann_json_FOUND)
    target_link_libraries(stemma PRIVATE nlohmann_json::nlohmann_json)
  endif()
  # What a benchmark prints beside its numbers.
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type_upper)
  target_compile_definitions(stemma PRIVATE
    "STEMMA_VERSION=\"${PROJECT_VERSION}\""
    "STEMMA_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\""
    "STEMMA_COMPILER=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\""
    "STEMMA_BUILD_FLAGS=\"${CMAKE_CXX_FLAGS_${build_type_upper}}\"")
else()
  message(STATUS "stemma: src/cli/main.cc is not there yet, so the program is not built")
endif()

stemma_glob(example_sources "examples/*.cc")
foreach(source IN LISTS example_sources)
  cmake_path(GET source STEM name)
  add_executable(example_${name} ${source})
  stemma_configure_target(example_${name})
  target_link_libraries(example_${name} PRIVATE stemma::core)
endforeach()
