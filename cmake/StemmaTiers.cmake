# Usage: include()d where STEMMA_TIERS is on; tiers, each its own target.
#
#   stemma::tier         the contract's own parts, host memory, FaultyTier
#   stemma::tier_disk    a directory of this machine
#   stemma::tier_shared  a directory that many processes and machines use at once
#   stemma::tier_redis   Redis or Valkey, one server or a cluster
#   stemma::tier_seal    any of them with encrypted entries; needs OpenSSL
#
# What they need and the system does not have is left out, and `make` says so.

# stemma_tier_library(TARGET NAME HEADER...): what is the same for all of them.
function(stemma_tier_library target name)
  add_library(stemma::${name} ALIAS ${target})
  stemma_configure_target(${target})
  list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/include/stemma/")
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
stemma_glob(tier_sources "src/tier/*.cc")
if(tier_sources AND STEMMA_XXHASH_DIR)
  add_library(stemma_tier STATIC ${tier_sources})
  stemma_tier_library(stemma_tier tier tier.h host_tier.h faulty_tier.h tier_stack.h paged_tiers.h
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
  find_library(STEMMA_LIBURING uring)
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

stemma_glob(tier_seal_sources "src/tier/seal/*.cc")
if(tier_seal_sources AND TARGET stemma_tier AND OPENSSL_FOUND)
  add_library(stemma_tier_seal STATIC ${tier_seal_sources})
  stemma_tier_library(stemma_tier_seal tier_seal key_ring.h sealed_tier.h)
  find_package(Threads REQUIRED)
  target_link_libraries(stemma_tier_seal PUBLIC stemma_tier PRIVATE OpenSSL::Crypto Threads::Threads)
  set(stemma_tier_seal_needs OpenSSL)
elseif(NOT OPENSSL_FOUND)
  message(STATUS "stemma: without OpenSSL (libssl-dev) entries cannot be sealed")
endif()
