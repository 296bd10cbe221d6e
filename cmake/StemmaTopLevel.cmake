# Usage: include()d when Stemma is the project being built and not a part of another one. Build
# type, compiler cache, sanitizers and coverage: choices a subproject must leave to its parent.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")

find_program(STEMMA_CCACHE ccache)
mark_as_advanced(STEMMA_CCACHE)
if(STEMMA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths inside the project do not count, so that another clone of it finds what this one compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
      "CCACHE_NOHASHDIR=1" "${STEMMA_CCACHE}")
endif()

if(STEMMA_SANITIZE)
  add_compile_options("-fsanitize=${STEMMA_SANITIZE}" -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options("-fsanitize=${STEMMA_SANITIZE}")
endif()
if(STEMMA_SANITIZE MATCHES "thread")
  add_compile_definitions(STEMMA_TSAN=1)
  # TSan wants its shadow memory at fixed places, and kernels that randomise addresses widely put
  # other things there. Where the system lets us, run the tests without that randomness.
  execute_process(COMMAND setarch -R true RESULT_VARIABLE no_setarch OUTPUT_QUIET ERROR_QUIET)
  if(no_setarch EQUAL 0 AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    set(CMAKE_CROSSCOMPILING_EMULATOR "setarch;-R")
  endif()
endif()
if(STEMMA_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()
