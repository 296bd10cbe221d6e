# Usage: include()d in developer mode and for tests; traces through a cache.
#
#   stemma::flags    the words behind a program's name
#   stemma::replay   traces, policies judged by them, bounds; reads zstd where libzstd is found

stemma_glob(flags_sources "src/flags/*.cc")
add_library(stemma_flags STATIC ${flags_sources})
add_library(stemma::flags ALIAS stemma_flags)
stemma_configure_target(stemma_flags)
target_include_directories(stemma_flags PUBLIC "${PROJECT_SOURCE_DIR}/src")
stemma_glob(replay_sources "src/replay/*.cc")
add_library(stemma_replay STATIC ${replay_sources})
add_library(stemma::replay ALIAS stemma_replay)
stemma_configure_target(stemma_replay)
target_include_directories(stemma_replay PUBLIC "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(stemma_replay PUBLIC stemma::core stemma::flags PRIVATE stemma_json_write)
# As stemma::core: ready to be part of a shared library.
set_target_properties(stemma_flags stemma_replay PROPERTIES
  POSITION_INDEPENDENT_CODE ON
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON)
find_path(STEMMA_ZSTD_INCLUDE zstd.h)
stemma_find_library(STEMMA_ZSTD_LIBRARY zstd)
if(STEMMA_ZSTD_INCLUDE AND STEMMA_ZSTD_LIBRARY)
  target_compile_definitions(stemma_replay PRIVATE STEMMA_HAS_ZSTD=1)
  target_include_directories(stemma_replay SYSTEM PRIVATE "${STEMMA_ZSTD_INCLUDE}")
  target_link_libraries(stemma_replay PRIVATE "${STEMMA_ZSTD_LIBRARY}")
else()
  message(STATUS "stemma: no libzstd, so compressed traces have to be decompressed by hand")
endif()
