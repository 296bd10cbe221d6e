# Usage: include()d where STEMMA_TIERS is on; tiers, each its own target.
#
#   stemma::tier         the contract's own parts, host memory, FaultyTier
#   stemma::tier_disk    a directory of this machine
#   stemma::tier_shared  a directory that many processes and machines use at once
#   stemma::tier_redis   Redis or Valkey, one server or a cluster
#   stemma::tier_seal    any of them with encrypted entries; needs OpenSSL, and is faster with IPsec MB
#
# What they need and the system does not have is left out, and `make` says so.

# stemma_tier_library(TARGET NAME HEADER...): what is the same for all of them.
function(stemma_tier_library target name)
  add_library(stemma::${name} ALIAS ${target})
  stemma_configure_target(${target})
  list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/include/stemma/tier/")
  target_sources(${target}
    PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${ARGN})
  # As stemma::core: ready to be part of a shared library.
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name}
    POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    VERIFY_INTERFACE_HEADER_SETS ${STEMMA_DEVELOPER_MODE})
endfunction()

find_path(STEMMA_XXHASH_DIR xxhash.h)
stemma_glob(tier_sources "src/tier/*.cc" "src/tier/object/*.cc")
if(tier_sources AND STEMMA_XXHASH_DIR)
  add_library(stemma_tier STATIC ${tier_sources})
  stemma_tier_library(stemma_tier tier tier.h host_tier.h faulty_tier.h tier_stack.h stack_stats.h paged_tiers.h
                      sequence_tiers.h)
  target_include_directories(stemma_tier PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>")
  target_include_directories(stemma_tier SYSTEM PRIVATE "${STEMMA_XXHASH_DIR}")
  target_link_libraries(stemma_tier PUBLIC stemma_core PRIVATE ${CMAKE_DL_LIBS})
elseif(NOT STEMMA_XXHASH_DIR)
  message(STATUS "stemma: no tiers without xxhash.h (libxxhash-dev)")
endif()

# The disk tier. io_uring where liburing is there; otherwise it has threads.
stemma_glob(tier_disk_sources "src/tier/disk/*.cc")
if(tier_disk_sources AND TARGET stemma_tier)
  add_library(stemma_tier_disk STATIC ${tier_disk_sources})
  stemma_tier_library(stemma_tier_disk tier_disk disk_tier.h)
  target_include_directories(stemma_tier_disk SYSTEM PRIVATE "${STEMMA_XXHASH_DIR}")
  find_package(Threads REQUIRED)
  target_link_libraries(stemma_tier_disk PUBLIC stemma_tier PRIVATE Threads::Threads)
  find_path(STEMMA_LIBURING_DIR liburing.h)
  stemma_find_library(STEMMA_LIBURING uring)
  if(STEMMA_LIBURING_DIR AND STEMMA_LIBURING)
    target_compile_definitions(stemma_tier_disk PRIVATE STEMMA_HAS_LIBURING=1)
    # An own name for it, which an installed Stemma looks up again where it is used.
    add_library(stemma::liburing INTERFACE IMPORTED)
    target_link_libraries(stemma::liburing INTERFACE "${STEMMA_LIBURING}")
    target_include_directories(stemma_tier_disk SYSTEM PRIVATE "${STEMMA_LIBURING_DIR}")
    target_link_libraries(stemma_tier_disk PRIVATE stemma::liburing)
    set(stemma_tier_disk_needs liburing)
  else()
    message(STATUS "stemma: without liburing the disk tier uses threads")
  endif()
endif()

stemma_glob(tier_shared_sources "src/tier/shared/*.cc")
if(tier_shared_sources AND TARGET stemma_tier)
  add_library(stemma_tier_shared STATIC ${tier_shared_sources})
  stemma_tier_library(stemma_tier_shared tier_shared shared_tier.h)
  find_package(Threads REQUIRED)
  target_link_libraries(stemma_tier_shared PUBLIC stemma_tier PRIVATE Threads::Threads)
endif()

find_package(OpenSSL QUIET)
stemma_glob(tier_redis_sources "src/tier/redis/*.cc")
if(tier_redis_sources AND TARGET stemma_tier)
  add_library(stemma_tier_redis STATIC ${tier_redis_sources})
  stemma_tier_library(stemma_tier_redis tier_redis redis_tier.h redis_url.h)
  target_link_libraries(stemma_tier_redis PUBLIC stemma_tier)
  # Without it there is no rediss://.
  if(OPENSSL_FOUND)
    target_link_libraries(stemma_tier_redis PRIVATE OpenSSL::SSL)
    target_compile_definitions(stemma_tier_redis PRIVATE STEMMA_HAS_TLS=1)
    set(stemma_tier_redis_needs OpenSSL)
  endif()
endif()

# Sealing with Intel's IPsec MB is several times as fast where the CPU has VAES and AVX-512.
set(STEMMA_IPSEC_MB AUTO CACHE STRING "Seal with libipsec-mb where it can: AUTO (if found), ON, OFF")
set_property(CACHE STEMMA_IPSEC_MB PROPERTY STRINGS AUTO ON OFF)

# stemma_link_ipsec_mb(TARGET FOUND): links it, unless it is switched off or absent.
function(stemma_link_ipsec_mb target found)
  set(${found} FALSE PARENT_SCOPE)
  if(NOT STEMMA_IPSEC_MB)
    return()
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    find_path(STEMMA_IPSEC_MB_DIR intel-ipsec-mb.h)
    stemma_find_library(STEMMA_IPSEC_MB_LIBRARY IPSec_MB)
  endif()
  if(STEMMA_IPSEC_MB_DIR AND STEMMA_IPSEC_MB_LIBRARY)
    # An own name for it, which an installed Stemma looks up again where it is used.
    if(NOT TARGET stemma::ipsec_mb)
      add_library(stemma::ipsec_mb INTERFACE IMPORTED GLOBAL)
      target_link_libraries(stemma::ipsec_mb INTERFACE "${STEMMA_IPSEC_MB_LIBRARY}")
    endif()
    target_compile_definitions(${target} PRIVATE STEMMA_HAS_IPSEC_MB=1)
    target_include_directories(${target} SYSTEM PRIVATE "${STEMMA_IPSEC_MB_DIR}")
    target_link_libraries(${target} PRIVATE stemma::ipsec_mb)
    set(${found} TRUE PARENT_SCOPE)
  elseif(NOT STEMMA_IPSEC_MB STREQUAL "AUTO")
    message(FATAL_ERROR "stemma: STEMMA_IPSEC_MB is ON, and libipsec-mb (libipsec-mb-dev) is not there")
  endif()
endfunction()

stemma_glob(tier_seal_sources "src/tier/seal/*.cc")
if(tier_seal_sources AND TARGET stemma_tier AND OPENSSL_FOUND)
  add_library(stemma_tier_seal STATIC ${tier_seal_sources})
  stemma_tier_library(stemma_tier_seal tier_seal key_ring.h sealed_tier.h)
  find_package(Threads REQUIRED)
  target_link_libraries(stemma_tier_seal PUBLIC stemma_tier PRIVATE OpenSSL::Crypto Threads::Threads)
  set(stemma_tier_seal_needs OpenSSL)
  stemma_link_ipsec_mb(stemma_tier_seal has_ipsec_mb)
  if(has_ipsec_mb)
    list(APPEND stemma_tier_seal_needs ipsec_mb)
  endif()
elseif(NOT OPENSSL_FOUND)
  message(STATUS "stemma: without OpenSSL (libssl-dev) entries cannot be sealed")
endif()
