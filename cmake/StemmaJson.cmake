# Usage: include()d always; writing JSON, which several parts do and which needs no parser.
#
#   stemma::json_write   texts, numbers and objects; ready to be part of a shared library

add_library(stemma_json_write STATIC EXCLUDE_FROM_ALL
  "${PROJECT_SOURCE_DIR}/src/json/write.cc" "${PROJECT_SOURCE_DIR}/src/json/utf8.cc")
add_library(stemma::json_write ALIAS stemma_json_write)
stemma_configure_target(stemma_json_write)
target_include_directories(stemma_json_write PUBLIC "${PROJECT_SOURCE_DIR}/src")
set_target_properties(stemma_json_write PROPERTIES
  POSITION_INDEPENDENT_CODE ON
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON)
