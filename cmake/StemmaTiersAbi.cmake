# Usage: include()d where there are tiers; their part of the C ABI.
#
#   stemma::tiers   libstemma_tiers.so, on top of libstemma.so, which stays free of what tiers link
#
# How C is checked is compiled a second time from src/capi: libstemma.so shows its C ABI and nothing
# else.

# What stands behind a stemma_store, apart from C: tests put tiers of their own under it.
stemma_glob(store_sources "src/capi/store/*.cc")
add_library(stemma_store STATIC ${store_sources})
stemma_configure_target(stemma_store)
target_include_directories(stemma_store PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(stemma_store PUBLIC stemma_tier)
set_target_properties(stemma_store PROPERTIES
  POSITION_INDEPENDENT_CODE ON
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON)

stemma_glob(tiers_abi_sources "src/capi/tiers/*.cc")
add_library(stemma_tiers_shared SHARED ${tiers_abi_sources}
  src/capi/decode.cc src/capi/sequence_decode.cc src/capi/callback_engine.cc
  src/capi/slot_table.cc)
add_library(stemma::tiers ALIAS stemma_tiers_shared)
stemma_configure_target(stemma_tiers_shared)
target_sources(stemma_tiers_shared PUBLIC FILE_SET HEADERS
  BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES
    "${PROJECT_SOURCE_DIR}/include/stemma/stemma_tiers.h"
    "${PROJECT_SOURCE_DIR}/include/stemma/stemma_store.h")
target_include_directories(stemma_tiers_shared PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(stemma_tiers_shared PUBLIC stemma_shared PRIVATE stemma_store stemma_tier stemma_json_write)
foreach(part IN ITEMS tier_disk tier_shared tier_redis tier_seal)
  if(TARGET stemma_${part})
    string(TOUPPER "STEMMA_HAS_${part}" has)
    target_link_libraries(stemma_tiers_shared PRIVATE stemma_${part})
    target_compile_definitions(stemma_tiers_shared PRIVATE ${has}=1)
  endif()
endforeach()
set_target_properties(stemma_tiers_shared PROPERTIES
  EXPORT_NAME tiers
  OUTPUT_NAME stemma_tiers
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  VERIFY_INTERFACE_HEADER_SETS ${STEMMA_DEVELOPER_MODE}
  VERSION ${PROJECT_VERSION}
  SOVERSION 0
  INSTALL_RPATH "$ORIGIN"         # libstemma.so lies beside it.
  INTERFACE_COMPILE_FEATURES ""   # Users may have no C++ compiler.
  LINK_DEPENDS "${PROJECT_SOURCE_DIR}/src/capi/tiers/stemma_tiers.map")
target_link_options(stemma_tiers_shared PRIVATE
  "LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/capi/tiers/stemma_tiers.map")
stemma_portable(stemma_tiers_shared)
