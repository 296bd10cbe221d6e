# Usage: include()d in developer mode and for tests; traces through a cache.
#
#   stemma::replay   traces, policies judged by them, bounds; reads zstd where libzstd is found

stemma_glob(replay_sources "src/replay/*.cc")
add_library(stemma_replay STATIC ${replay_sources})
add_library(stemma::replay ALIAS stemma_replay)
stemma_configure_target(stemma_replay)
target_include_directories(stemma_replay PUBLIC "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(stemma_replay PUBLIC stemma::core)
find_path(STEMMA_ZSTD_INCLUDE zstd.h)
find_library(STEMMA_ZSTD_LIBRARY zstd)
if(STEMMA_ZSTD_INCLUDE AND STEMMA_ZSTD_LIBRARY)
  target_compile_definitions(stemma_replay PRIVATE STEMMA_HAS_ZSTD=1)
  target_include_directories(stemma_replay SYSTEM PRIVATE "${STEMMA_ZSTD_INCLUDE}")
  target_link_libraries(stemma_replay PRIVATE "${STEMMA_ZSTD_LIBRARY}")
else()
  message(STATUS "stemma: no libzstd, so compressed traces have to be decompressed by hand")
endif()
