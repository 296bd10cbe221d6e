# Usage: include()d in developer mode and for tests; engines that use Stemma, each its own target.
#
#   stemma::engine_paged   the reference engine: a small transformer over PagedCache, on the CPU

stemma_glob(engine_paged_sources "src/engine/paged/*.cc")
add_library(stemma_engine_paged STATIC ${engine_paged_sources})
add_library(stemma::engine_paged ALIAS stemma_engine_paged)
stemma_configure_target(stemma_engine_paged)
target_include_directories(stemma_engine_paged PUBLIC "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(stemma_engine_paged PUBLIC stemma::core)
# Its results are compared bit by bit, so no operation may be fused with another one here and not
# there. Loops over independent elements may be vectorised: that keeps the order of each sum.
target_compile_options(stemma_engine_paged PRIVATE -ffp-contract=off)
if(NOT STEMMA_COVERAGE)
  target_compile_options(stemma_engine_paged PRIVATE -O3)
endif()
