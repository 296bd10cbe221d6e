# Usage: include()d where there are tiers; the block mover.
#
#   stemma_mover     what moves blocks, C++; CUDA devices too where nvcc is
#   stemma::mover    libstemma_mover.so, its part of the C ABI, on top of libstemma.so
#
# STEMMA_CUDA       AUTO: with CUDA where nvcc is found; ON: nvcc must be there; OFF: the CPU alone
# STEMMA_CUDA_ARCH  compute capabilities to compile for; other devices compile the newest one's PTX
#
# The driver is loaded when a mover for a device is created, so the library links nothing of CUDA.

set(STEMMA_CUDA AUTO CACHE STRING "Build the block mover with CUDA: AUTO, ON or OFF")
set_property(CACHE STEMMA_CUDA PROPERTY STRINGS AUTO ON OFF)
set(STEMMA_CUDA_ARCH "80;89;90;100" CACHE STRING "Compute capabilities of the block mover's kernel")

stemma_glob(mover_sources "src/mover/*.cc" "src/mover/cuda/*.cc")
add_library(stemma_mover STATIC ${mover_sources})
stemma_configure_target(stemma_mover)
target_include_directories(stemma_mover PUBLIC "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(stemma_mover PUBLIC stemma_tier PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(stemma_mover PROPERTIES
  POSITION_INDEPENDENT_CODE ON
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON)

if(STEMMA_CUDA)
  find_program(STEMMA_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(STEMMA_NVCC)
  if(STEMMA_NVCC)
    set(kernel_source "${PROJECT_SOURCE_DIR}/src/mover/cuda/kernel.cu")
    set(kernel_image "${PROJECT_BINARY_DIR}/stemma_mover.fatbin")
    set(code "")
    foreach(arch IN LISTS STEMMA_CUDA_ARCH)
      list(APPEND code -gencode "arch=compute_${arch},code=sm_${arch}")
      set(newest "${arch}")
    endforeach()
    list(APPEND code -gencode "arch=compute_${newest},code=compute_${newest}")
    add_custom_command(OUTPUT "${kernel_image}"
      COMMAND "${STEMMA_NVCC}" -std=c++20 -O3 --expt-relaxed-constexpr "-I${PROJECT_SOURCE_DIR}/src"
              ${code} -fatbin "${kernel_source}" -o "${kernel_image}"
      DEPENDS "${kernel_source}" "${PROJECT_SOURCE_DIR}/src/mover/cuda/kernel_body.h"
              "${PROJECT_SOURCE_DIR}/src/mover/piece.h" "${PROJECT_SOURCE_DIR}/src/base/word_sum.h"
      COMMENT "nvcc: the block mover's kernel" VERBATIM)
    add_custom_target(stemma_mover_kernel DEPENDS "${kernel_image}")
    add_dependencies(stemma_mover stemma_mover_kernel)
    set_source_files_properties("${PROJECT_SOURCE_DIR}/src/mover/cuda/kernel_image.cc" PROPERTIES
      COMPILE_DEFINITIONS "STEMMA_MOVER_KERNEL=\"${kernel_image}\""
      OBJECT_DEPENDS "${kernel_image}"
      SKIP_UNITY_BUILD_INCLUSION ON)
  elseif(NOT STEMMA_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "stemma: STEMMA_CUDA is ON and nvcc was not found")
  else()
    message(STATUS "stemma: without nvcc the block mover serves CPUs alone")
  endif()
endif()

stemma_glob(mover_abi_sources "src/capi/mover/*.cc")
add_library(stemma_mover_shared SHARED ${mover_abi_sources} src/capi/slot_table.cc)
add_library(stemma::mover ALIAS stemma_mover_shared)
stemma_configure_target(stemma_mover_shared)
target_sources(stemma_mover_shared PUBLIC FILE_SET HEADERS
  BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES
    "${PROJECT_SOURCE_DIR}/include/stemma/stemma_mover.h")
target_include_directories(stemma_mover_shared PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(stemma_mover_shared PUBLIC stemma_shared PRIVATE stemma_mover)
set_target_properties(stemma_mover_shared PROPERTIES
  EXPORT_NAME mover
  OUTPUT_NAME stemma_mover
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  VERIFY_INTERFACE_HEADER_SETS ${STEMMA_DEVELOPER_MODE}
  VERSION ${PROJECT_VERSION}
  SOVERSION 0
  INSTALL_RPATH "$ORIGIN"         # libstemma.so lies beside it.
  INTERFACE_COMPILE_FEATURES ""   # Users may have no C++ compiler.
  LINK_DEPENDS "${PROJECT_SOURCE_DIR}/src/capi/mover/stemma_mover.map")
target_link_options(stemma_mover_shared PRIVATE
  "LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/capi/mover/stemma_mover.map")
stemma_portable(stemma_mover_shared)
