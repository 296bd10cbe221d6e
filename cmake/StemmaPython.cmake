# Usage: include()d where STEMMA_PYTHON is on; the libraries that the Python package calls.
#
#   libstemma_replay.so   `stemma replay` as a function; only the Python package has it
#   python_libraries      builds it, libstemma.so, libstemma_tiers.so and libstemma_mover.so

add_library(stemma_replay_shared SHARED src/capi/replay/replay.cc)
stemma_configure_target(stemma_replay_shared)
target_include_directories(stemma_replay_shared PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(stemma_replay_shared PRIVATE stemma_shared stemma_replay)
set_target_properties(stemma_replay_shared PROPERTIES
  OUTPUT_NAME stemma_replay
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  VERSION ${PROJECT_VERSION}
  SOVERSION 0
  LINK_DEPENDS "${PROJECT_SOURCE_DIR}/src/capi/replay/stemma_replay.map")
target_link_options(stemma_replay_shared PRIVATE
  "LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/capi/replay/stemma_replay.map")
stemma_portable(stemma_replay_shared)

add_custom_target(python_libraries DEPENDS stemma_shared stemma_replay_shared)
if(TARGET stemma_tiers_shared)
  add_dependencies(python_libraries stemma_tiers_shared)
endif()
if(TARGET stemma_mover_shared)
  add_dependencies(python_libraries stemma_mover_shared)
endif()
