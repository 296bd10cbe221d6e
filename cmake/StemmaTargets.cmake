# Usage: include()d by the top CMakeLists.txt; the functions every target of ours goes through.

# stemma_glob(VARIABLE PATTERN...): the files under the project root that match, without unit tests.
function(stemma_glob variable)
  set(patterns "")
  foreach(pattern IN LISTS ARGN)
    list(APPEND patterns "${PROJECT_SOURCE_DIR}/${pattern}")
  endforeach()
  file(GLOB files CONFIGURE_DEPENDS ${patterns})
  list(FILTER files EXCLUDE REGEX "_test\\.cc$")
  set(${variable} "${files}" PARENT_SCOPE)
endfunction()

# -Wconversion is left out on purpose: index arithmetic between 32 and 64 bits would be half casts.
set(stemma_warnings
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wextra-semi
  -Wcast-qual -Wimplicit-fallthrough -Wformat=2 -Wundef -Wvla)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees overlapping copies in std::string's operator+ where there are none (GCC bug 105651),
  # and uninitialised reads and overflowing fills in vectors that sanitizers have instrumented.
  # TSan's complaint about fences is worth reading and no reason to stop.
  list(APPEND stemma_warnings -Wduplicated-cond -Wlogical-op -Wno-restrict -Wno-error=tsan
       -Wno-error=stringop-overflow)
  if(STEMMA_SANITIZE)
    list(APPEND stemma_warnings -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds)
  endif()
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND stemma_warnings -Wthread-safety)
  if(PROJECT_IS_TOP_LEVEL)
    list(APPEND stemma_warnings -Werror=thread-safety)
  endif()
endif()
if(STEMMA_WERROR)
  list(APPEND stemma_warnings -Werror)
endif()

# Several sources are compiled as one where STEMMA_UNITY is on (the dev, asan and tsan presets):
# headers and templates are then compiled once for all of them, which halves the time of a first
# build. Release and lint compile each source alone, so a source that lacks an include is found
# there. What two sources of a target name alike in an unnamed namespace does not compile: share
# it, or give each the more precise name.
option(STEMMA_UNITY "Compile several sources as one" OFF)
# Compiled alone: what replaces operator new, so that nothing beside it has allocations inlined; and
# what needs more than the rest of its library, which the library's test links without that.
foreach(file IN ITEMS bench/allocations.cc tests/fault/failing_new.cc bench/sequences/report.cc)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/${file}" PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()

# stemma_configure_target(TARGET): language level and warnings.
function(stemma_configure_target target)
  if(STEMMA_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # A fixture in an unnamed namespace, seen from the file that includes its file, is no mistake.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    endif()
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  # We catch std::bad_alloc, whatever a parent project does without.
  target_compile_options(${target} PRIVATE ${stemma_warnings} -fexceptions)
endfunction()

# stemma_x86_flags(FILE FLAG...): extra flags for one file, where there is such a file and an
# x86-64.
function(stemma_x86_flags file)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${file}" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set_source_files_properties("${PROJECT_SOURCE_DIR}/${file}" PROPERTIES COMPILE_OPTIONS "${ARGN}")
  endif()
endfunction()

# stemma_portable(TARGET): where STEMMA_PORTABLE is on, a shared library brings its C++ runtime with
# it, so that it runs on systems with an older one. libgcc_s stays shared: its static twin needs a
# newer C library (_dl_find_object, glibc 2.35) than the shared one does.
function(stemma_portable target)
  if(STEMMA_PORTABLE)
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src/capi/portable/arc4random.cc")
    target_link_options(${target} PRIVATE -static-libstdc++ "LINKER:--exclude-libs,ALL" "LINKER:-s"
      "LINKER:--gc-sections" "LINKER:-z,now" "LINKER:-z,relro")
    set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN"
      BUILD_RPATH_USE_ORIGIN ON BUILD_WITH_INSTALL_RPATH ON)
  endif()
endfunction()

# What other libraries we link, statically where STEMMA_PORTABLE is on.
if(STEMMA_PORTABLE)
  set(OPENSSL_USE_STATIC_LIBS ON)
endif()
function(stemma_find_library variable name)
  if(STEMMA_PORTABLE)
    find_library(${variable} "lib${name}.a")
  else()
    find_library(${variable} "${name}")
  endif()
endfunction()
