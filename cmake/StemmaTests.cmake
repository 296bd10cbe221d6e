# Usage: include()d when STEMMA_BUILD_TESTS is on; one gtest executable per folder that has tests.
#
#   src/<folder>/*_test.cc           ->  <folder>_test    label: unit
#   src/engine/paged/*_test.cc       ->  engine_paged_test
#   bench/sequences/*_test.cc        ->  sequence_bench_test
#   tests/<kind>/*.cc                ->  <kind>_test      label: <kind>
#   tests/sequences/*.cc             ->  sequence_schedules_test
#   tests/support/*                  ->  stemma_test_support, which all of them link
#   tests/package/                   ->  programs of users, label: package
#
# Each test runs as a process of its own in the project root. STEMMA_TESTS_DIR names tests/.

enable_testing()
include(GoogleTest)
find_package(GTest REQUIRED)

stemma_glob(support_sources "tests/support/*.cc")
if(support_sources)
  add_library(stemma_test_support OBJECT ${support_sources})
  stemma_configure_target(stemma_test_support)
  set(reach PUBLIC)
else()
  add_library(stemma_test_support INTERFACE)
  target_compile_features(stemma_test_support INTERFACE cxx_std_20)
  set(reach INTERFACE)
endif()
target_include_directories(stemma_test_support ${reach}
  "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(stemma_test_support ${reach} stemma::core GTest::gtest)
target_compile_definitions(stemma_test_support ${reach}
  "STEMMA_TESTS_DIR=\"${PROJECT_SOURCE_DIR}/tests\"")

set(stemma_test_timeout_s 300)
if(STEMMA_SANITIZE)
  set(stemma_test_timeout_s 900)
endif()

# stemma_add_tests(NAME LABEL FILE...): nothing at all when there are no files.
function(stemma_add_tests name label)
  if(NOT ARGN)
    return()
  endif()
  add_executable(${name} ${ARGN})
  stemma_configure_target(${name})
  target_link_libraries(${name} PRIVATE stemma_test_support GTest::gtest_main)
  gtest_discover_tests(${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    PROPERTIES LABELS ${label} TIMEOUT ${stemma_test_timeout_s})
endfunction()

foreach(folder IN LISTS stemma_core_folders)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*_test.cc")
  stemma_add_tests(${folder}_test unit ${files})
endforeach()
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/capi/*_test.cc")
stemma_add_tests(capi_test unit ${files})
if(TARGET capi_test)
  target_link_libraries(capi_test PRIVATE stemma_capi)
endif()
foreach(kind IN ITEMS contract scenario model fault oracle)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${kind}/*.cc")
  stemma_add_tests(${kind}_test ${kind} ${files})
endforeach()
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/sequences/*.cc")
stemma_add_tests(sequence_schedules_test sequences ${files})
if(TARGET fault_test)
  target_link_libraries(fault_test PRIVATE stemma_capi)
endif()
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/engine/paged/*_test.cc")
stemma_add_tests(engine_paged_test unit ${files})
foreach(name IN ITEMS oracle_test engine_paged_test)
  if(TARGET ${name})
    target_link_libraries(${name} PRIVATE stemma::engine_paged)
  endif()
endforeach()
if(TARGET stemma_sequence_bench)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/sequences/*_test.cc")
  stemma_add_tests(sequence_bench_test unit ${files} bench/harness.cc)
  target_link_libraries(sequence_bench_test PRIVATE stemma_sequence_bench)
endif()

# The program, as a user calls it.
if(TARGET stemma)
  add_test(NAME demo.LogitsAreIdentical COMMAND stemma demo --requests 30)
  add_test(NAME demo.LostOutputIsAnError COMMAND sh -c "$<TARGET_FILE:stemma> --help > /dev/full")
  set_tests_properties(demo.LostOutputIsAnError PROPERTIES WILL_FAIL ON LABELS program)
  add_test(NAME demo.BadArgumentsAreRefused COMMAND stemma demo --requests none)
  set_tests_properties(demo.BadArgumentsAreRefused PROPERTIES
    PASS_REGULAR_EXPRESSION "--requests needs a number")
  set_tests_properties(demo.LogitsAreIdentical demo.BadArgumentsAreRefused PROPERTIES
    LABELS program TIMEOUT ${stemma_test_timeout_s})
endif()

# OpenSSL judges our own hashing, in tests only.
if(TARGET key_test)
  find_package(OpenSSL REQUIRED COMPONENTS Crypto)
  target_link_libraries(key_test PRIVATE OpenSSL::Crypto)
endif()

# --- Stemma as its users meet it --------------------------------------------------------------------

# C99 programs against the shared library.
enable_language(C)
foreach(name IN ITEMS request_life sequence_life)
  add_executable(${name} tests/package/${name}.c)
  target_compile_options(${name} PRIVATE -std=c99 -Wall -Wextra -pedantic -Werror)
  target_link_libraries(${name} PRIVATE stemma::stemma)
endforeach()
add_test(NAME Package.RequestLife COMMAND request_life)
add_test(NAME Package.SequenceLife COMMAND sequence_life)

# The others start from an installation, of libraries that any compiler may link.
if(STEMMA_DEVELOPER_MODE AND STEMMA_INSTALL AND NOT STEMMA_SANITIZE AND NOT STEMMA_COVERAGE)
  set(run "${PROJECT_SOURCE_DIR}/tests/package/run")
  add_test(NAME Package.Abi COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/package/abi.py"
    --library $<TARGET_FILE:stemma_shared>)
  add_test(NAME Package.Install COMMAND "${run}" install "${PROJECT_BINARY_DIR}")
  set_tests_properties(Package.Install PROPERTIES FIXTURES_SETUP stemma_installed)
  add_test(NAME Package.FindPackageCpp COMMAND "${run}" find_package_cpp "${PROJECT_BINARY_DIR}")
  add_test(NAME Package.FindPackageC COMMAND "${run}" find_package_c "${PROJECT_BINARY_DIR}")
  add_test(NAME Package.PkgConfig COMMAND "${run}" pkg_config "${PROJECT_BINARY_DIR}")
  set_tests_properties(Package.FindPackageCpp Package.FindPackageC Package.PkgConfig PROPERTIES
    FIXTURES_REQUIRED stemma_installed)
  add_test(NAME Package.AddSubdirectory COMMAND "${run}" add_subdirectory "${PROJECT_BINARY_DIR}")
  add_test(NAME Package.Deb COMMAND "${run}" deb "${PROJECT_BINARY_DIR}")
  # It builds in a folder of the test before.
  set_tests_properties(Package.Deb PROPERTIES DEPENDS Package.FindPackageCpp)
  set_tests_properties(Package.Abi Package.Install Package.FindPackageCpp Package.FindPackageC
    Package.PkgConfig Package.AddSubdirectory Package.Deb PROPERTIES LABELS package TIMEOUT 300)
endif()
set_tests_properties(Package.RequestLife Package.SequenceLife PROPERTIES LABELS package TIMEOUT 60)
