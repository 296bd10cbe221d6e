# Usage: include()d in developer mode; the `stemma` program and the examples.

# Policies for opaque engines, ours and others', over workloads. Whoever links it brings the fake
# engine.
stemma_glob(sequence_bench_sources "bench/sequences/*.cc")
add_library(stemma_sequence_bench STATIC ${sequence_bench_sources})
stemma_configure_target(stemma_sequence_bench)
target_include_directories(stemma_sequence_bench PUBLIC
  "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(stemma_sequence_bench PUBLIC stemma::core PRIVATE stemma::flags)

stemma_glob(program_sources "src/cli/*.cc" "bench/*.cc" "bench/micro/*.cc" "bench/serve/*.cc"
  "bench/disk/*.cc" "bench/purge/*.cc" "bench/redis/*.cc"
  "tests/support/fake_sequences*.cc" "tests/support/sequence_faults.cc"
  "tests/support/fake_model.cc" "tests/support/engine_kinds.cc" "tests/support/http_client.cc")
if(EXISTS "${PROJECT_SOURCE_DIR}/src/cli/main.cc")
  add_executable(stemma ${program_sources})
  stemma_configure_target(stemma)
  target_include_directories(stemma PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  # The C ABI is measured through the shared library, as its users meet it.
  target_link_libraries(stemma PRIVATE
    stemma_sequence_bench stemma::core stemma::engine_paged stemma::replay stemma::stemma)
  if(nlohmann_json_FOUND)
    target_link_libraries(stemma PRIVATE nlohmann_json::nlohmann_json)
  endif()
  if(TARGET stemma_tier_redis)
    target_sources(stemma PRIVATE tests/tiers/redis_server.cc)
  endif()
  foreach(part IN ITEMS gguf engine_llama server tier_disk tier_redis tier_shared tier_seal)
    if(TARGET stemma_${part})
      target_link_libraries(stemma PRIVATE stemma_${part})
      string(TOUPPER "STEMMA_HAS_${part}" has)
      target_compile_definitions(stemma PRIVATE ${has}=1)
    endif()
  endforeach()
  # What a benchmark prints beside its numbers.
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type_upper)
  target_compile_definitions(stemma PRIVATE
    "STEMMA_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\""
    "STEMMA_COMPILER=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\""
    "STEMMA_BUILD_FLAGS=\"${CMAKE_CXX_FLAGS_${build_type_upper}}\"")
else()
  message(STATUS "stemma: src/cli/main.cc is not there yet, so the program is not built")
endif()

# What reaches an engine that stores its blocks through stemma_store.h; bench/results has what it
# said.
if(TARGET stemma_tiers_shared AND TARGET stemma_tier_disk)
  add_executable(store_bench bench/store/main.cc)
  stemma_configure_target(store_bench)
  target_link_libraries(store_bench PRIVATE stemma::tiers stemma::flags)
endif()
# What a constrained answer costs; bench/results has what it said.
if(TARGET stemma_constrain AND EXISTS "${PROJECT_SOURCE_DIR}/bench/constrain/main.cc")
  add_executable(constrain_bench bench/constrain/main.cc)
  stemma_configure_target(constrain_bench)
  target_include_directories(constrain_bench PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(constrain_bench PRIVATE stemma_constrain)
endif()

if(EXISTS "${PROJECT_SOURCE_DIR}/examples/c")
  enable_language(C)
  file(GLOB c_examples CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/c/*.c")
  foreach(source IN LISTS c_examples)
    cmake_path(GET source STEM name)
    if(name MATCHES "^store_" AND NOT (TARGET stemma_tiers_shared AND TARGET stemma_tier_disk))
      continue()
    endif()
    if(name MATCHES "^move_" AND NOT TARGET stemma_mover_shared)
      continue()
    endif()
    add_executable(example_c_${name} ${source})
    target_compile_options(example_c_${name} PRIVATE -std=c99 -Wall -Wextra -pedantic)
    target_link_libraries(example_c_${name} PRIVATE stemma::stemma)
    if(name MATCHES "^store_")
      target_link_libraries(example_c_${name} PRIVATE stemma::tiers)
    endif()
    if(name MATCHES "^move_")
      target_link_libraries(example_c_${name} PRIVATE stemma::mover)
    endif()
  endforeach()
endif()

stemma_glob(example_sources "examples/*.cc")
foreach(source IN LISTS example_sources)
  cmake_path(GET source STEM name)
  if(name MATCHES "^tiers_" AND NOT TARGET stemma_tier_disk)
    continue()
  endif()
  add_executable(example_${name} ${source})
  stemma_configure_target(example_${name})
  target_link_libraries(example_${name} PRIVATE stemma::core)
  if(name MATCHES "^tiers_")
    target_link_libraries(example_${name} PRIVATE stemma::tier_disk)
  endif()
endforeach()
