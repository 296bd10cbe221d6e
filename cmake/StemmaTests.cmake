# Usage: include()d when STEMMA_BUILD_TESTS is on; one gtest executable per folder that has tests.
#
#   src/<folder>/*_test.cc           ->  <folder>_test    label: unit
#   src/engine/paged/*_test.cc       ->  engine_paged_test
#   src/capi/tiers/*_test.cc         ->  capi_tiers_test
#   src/tier, src/tier/disk, object, redis, shared, seal: tier_test, tier_disk_test, tier_redis_test, ...
#   src/capi/store/*_test.cc         ->  capi_store_test
#   src/mover, src/mover/cuda, tests/mover: mover_test, over the CPU, a fake device and a real one; label: mover
#   src/capi/mover/*_test.cc         ->  capi_mover_test
#   src/engine/gguf, llama, src/flags, src/jinja, src/dialect, src/json, src/constrain, src/server and its rooms, src/replay:
#                                        engine_gguf_test, engine_llama_test, jinja_test, dialect_test (with
#                                        src/dialect/values), json_test, constrain_test, server_test, replay_test
#   src/constrain/schema             ->  constrain_schema_test
#   bench/sequences/*_test.cc        ->  sequence_bench_test
#   tests/<kind>/*.cc                ->  <kind>_test      label: <kind>
#   tests/sequences/*.cc             ->  sequence_schedules_test
#   tests/tiers/*.cc                 ->  tiers_test, over the tiers that there are
#   tests/tiers/redis_*.cc           ->  redis_test, over servers that it starts
#   tests/llama/*.cc                 ->  llama_test, where there is llama.cpp
#   tests/support/*                  ->  stemma_test_support, which all of them link
#   tests/package/                   ->  programs of users, label: package
#   tests/program/                   ->  the program as a user calls it, label: program
#   python/tests/test_*.py           ->  python.<file>, label: python
#   tests/constrain/                 ->  walk_schemas, constrain.*: ajv judges answers, label: constrain
#   tests/serve/*.test.mjs           ->  serve.*, clients of the program, where there is llama.cpp
#
# Each test runs as a process of its own in the project root.

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

# For what hangs, not for what is slow.
set(stemma_test_timeout_s 900)
if(STEMMA_SANITIZE)
  set(stemma_test_timeout_s 1800)
endif()

# Tests are compiled more often than they run. These have models of their own that compute much.
set(stemma_optimised_tests model_test tree_test sequence_schedules_test)

# stemma_add_tests(NAME LABEL FILE...): nothing at all when there are no files.
# stemma_test_properties has further properties of the tests.
function(stemma_add_tests name label)
  if(NOT ARGN)
    return()
  endif()
  add_executable(${name} ${ARGN})
  stemma_configure_target(${name})
  # What they test keeps its own level.
  if(NOT STEMMA_COVERAGE)
    set(level -O0)
    if(name IN_LIST stemma_optimised_tests)
      set(level -O1)
    endif()
    target_compile_options(${name} PRIVATE ${level})
  endif()
  target_link_libraries(${name} PRIVATE stemma_test_support GTest::gtest_main)
  gtest_discover_tests(${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 300
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    PROPERTIES LABELS ${label} TIMEOUT ${stemma_test_timeout_s} ${stemma_test_properties})
endfunction()

foreach(folder IN LISTS stemma_core_folders)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*_test.cc"
                                    "${PROJECT_SOURCE_DIR}/src/${folder}/*/*_test.cc")
  stemma_add_tests(${folder}_test unit ${files})
endforeach()
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/capi/*_test.cc")
stemma_add_tests(capi_test unit ${files})
if(TARGET capi_test)
  target_link_libraries(capi_test PRIVATE stemma_capi)
endif()
# Through both shared libraries, as users have them.
if(TARGET stemma_tiers_shared AND TARGET stemma_tier_disk AND TARGET stemma_tier_redis)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/capi/tiers/*_test.cc")
  stemma_add_tests(capi_tiers_test unit ${files})
  target_link_libraries(capi_tiers_test PRIVATE stemma::tiers)
endif()
if(TARGET stemma_mover)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/mover/*_test.cc"
    "${PROJECT_SOURCE_DIR}/src/mover/cuda/*_test.cc" "${PROJECT_SOURCE_DIR}/tests/mover/*.cc")
  stemma_add_tests(mover_test mover ${files})
  target_link_libraries(mover_test PRIVATE stemma_mover ${CMAKE_DL_LIBS})
  add_executable(mover_speed tests/device/mover_speed.cc)
  stemma_configure_target(mover_speed)
  target_link_libraries(mover_speed PRIVATE stemma_mover Threads::Threads ${CMAKE_DL_LIBS})
  add_test(NAME Device.MoverSpeed COMMAND mover_speed 256)
  set_tests_properties(Device.MoverSpeed PROPERTIES
    LABELS device SKIP_RETURN_CODE 77 TIMEOUT ${stemma_test_timeout_s})
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/capi/mover/*_test.cc")
  stemma_add_tests(capi_mover_test unit ${files})
  if(TARGET capi_mover_test)
    target_link_libraries(capi_mover_test PRIVATE stemma::mover stemma::tiers)
  endif()
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
# Parts that are there if what they need is.
foreach(part IN ITEMS gguf:engine/gguf:engine_gguf engine_llama:engine/llama:engine_llama
        flags:flags:flags jinja:jinja:jinja dialect:dialect:dialect json:json:json
        constrain:constrain:constrain constrain:constrain/schema:constrain_schema server:server:server
        tier:tier:tier tier:tier/object:tier_object store:capi/store:capi_store tier_disk:tier/disk:tier_disk tier_redis:tier/redis:tier_redis
        tier_shared:tier/shared:tier_shared tier_seal:tier/seal:tier_seal)
  string(REPLACE ":" ";" part "${part}")
  list(GET part 0 library)
  list(GET part 1 folder)
  list(GET part 2 name)
  if(TARGET stemma_${library})
    file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*_test.cc")
    if(name STREQUAL "server")  # The rooms in it are one library.
      file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/server/*_test.cc")
    endif()
    stemma_add_tests(${name}_test unit ${files})
    if(TARGET ${name}_test)
      target_link_libraries(${name}_test PRIVATE stemma_${library})
    endif()
  endif()
endforeach()
# What the server records is read back.
if(TARGET server_test)
  target_link_libraries(server_test PRIVATE stemma::replay)
  # The server over a model that says what a script says: for clients in other languages
  # (tests/agents).
  add_executable(scripted_server tests/serve/scripted_server.cc)
  stemma_configure_target(scripted_server)
  target_link_libraries(scripted_server PRIVATE stemma_test_support stemma_server
    nlohmann_json::nlohmann_json)
endif()
# Some of them run without memory, and some with a CUDA driver that is none.
if(TARGET tier_test)
  target_sources(tier_test PRIVATE tests/fault/failing_new.cc)
  add_library(fake_cuda MODULE tests/support/fake_cuda.c)
  add_dependencies(tier_test fake_cuda)
  target_compile_definitions(tier_test PRIVATE STEMMA_FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
  target_link_libraries(tier_test PRIVATE ${CMAKE_DL_LIBS})
  add_executable(pinned_memory tests/device/pinned_memory.cc)
  stemma_configure_target(pinned_memory)
  target_link_libraries(pinned_memory PRIVATE stemma_tier ${CMAKE_DL_LIBS})
  add_test(NAME Device.PinnedMemory COMMAND pinned_memory 1)
  set_tests_properties(Device.PinnedMemory PROPERTIES
    LABELS device SKIP_RETURN_CODE 77 TIMEOUT ${stemma_test_timeout_s})
endif()
if(TARGET stemma_tier)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/tiers/*.cc")
  if(NOT TARGET stemma_tier_disk)
    list(FILTER files EXCLUDE REGEX "/tests/tiers/disk_[^/]*$")
  endif()
  if(NOT TARGET stemma_tier_shared)
    list(FILTER files EXCLUDE REGEX "/tests/tiers/shared_[^/]*$")
  endif()
  list(FILTER files EXCLUDE REGEX "/tests/tiers/redis_[^/]*$")
  if(NOT TARGET stemma_tier_seal OR NOT TARGET stemma_tier_disk OR NOT TARGET stemma_tier_shared)
    list(FILTER files EXCLUDE REGEX "/tests/tiers/sealed_[^/]*$")
  endif()
  stemma_add_tests(tiers_test tiers ${files} tests/oracle/judge.cc)
  target_link_libraries(tiers_test PRIVATE stemma::engine_paged)
  foreach(name IN ITEMS tier tier_disk tier_shared tier_seal)
    if(TARGET stemma_${name})
      target_link_libraries(tiers_test PRIVATE stemma_${name})
    endif()
  endforeach()
  # What DiskCrash kills, and what looks afterwards.
  if(TARGET stemma_tier_disk)
    add_executable(crash_program tests/tiers/crash/crash_program.cc)
    stemma_configure_target(crash_program)
    target_include_directories(crash_program PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    target_link_libraries(crash_program PRIVATE stemma_tier_disk)
    add_dependencies(tiers_test crash_program)
  endif()
endif()
# What SharedProcesses starts, several at a time, and kills.
if(TARGET tiers_test AND TARGET stemma_tier_shared)
  add_executable(shared_program tests/tiers/shared/shared_program.cc
    tests/tiers/tier_suite_support.cc)
  stemma_configure_target(shared_program)
  target_link_libraries(shared_program PRIVATE stemma_test_support stemma_tier_shared GTest::gtest)
  add_dependencies(tiers_test shared_program)
endif()
# Those that start servers: one process for each group, which starts its servers once.
if(TARGET stemma_tier_redis)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/tiers/redis_*.cc"
    "${PROJECT_SOURCE_DIR}/tests/tiers/tier_suite*.cc")
  if(NOT TARGET stemma_store)
    list(FILTER files EXCLUDE REGEX "/tests/tiers/redis_store_[^/]*$")
  endif()
  add_executable(redis_test ${files} tests/oracle/judge.cc)
  stemma_configure_target(redis_test)
  target_link_libraries(redis_test PRIVATE stemma_test_support stemma_tier_redis stemma_tier
    stemma::engine_paged GTest::gtest_main)
  set(redis_groups "contract:Redis/TierContract.*/One" "cluster_contract:Redis/TierContract.*/Cluster"
    "server:RedisServer*" "write_back:RedisWriteBack*" "cluster:RedisCluster*" "hostile:RedisHostile*" "engine:Groups/RedisEngine*")
  if(TARGET stemma_store)
    target_link_libraries(redis_test PRIVATE stemma_store)
    list(APPEND redis_groups "store:RedisStore*")
  endif()
  # Valkey too, where it is installed.
  find_program(STEMMA_VALKEY valkey-server)
  set(servers redis)
  if(STEMMA_VALKEY)
    list(APPEND servers valkey)
  endif()
  foreach(server IN LISTS servers)
    foreach(group IN LISTS redis_groups)
      string(REPLACE ":" ";" group "${group}")
      list(GET group 0 name)
      list(GET group 1 filter)
      add_test(NAME ${server}.${name} COMMAND redis_test "--gtest_filter=${filter}")
      set_tests_properties(${server}.${name} PROPERTIES
        LABELS tiers TIMEOUT ${stemma_test_timeout_s} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
        ENVIRONMENT STEMMA_REDIS_SERVER=${server}-server)
    endforeach()
  endforeach()
endif()
# Real traces are read where the variable says, or where they lie beside the checkout; never
# committed.
if(EXISTS "${PROJECT_SOURCE_DIR}/../shared/traces" AND NOT DEFINED ENV{STEMMA_TRACES})
  set(stemma_test_properties ENVIRONMENT "STEMMA_TRACES=${PROJECT_SOURCE_DIR}/../shared/traces")
endif()
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/replay/*_test.cc")
stemma_add_tests(replay_test unit ${files})
unset(stemma_test_properties)
target_link_libraries(replay_test PRIVATE stemma::replay)
if(TARGET jinja_test)
  target_compile_definitions(jinja_test PRIVATE "STEMMA_TESTS_DIR=\"${PROJECT_SOURCE_DIR}/tests\"")
endif()
if(TARGET dialect_test)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/dialect/values/*_test.cc")
  target_sources(dialect_test PRIVATE ${files})
  target_compile_definitions(dialect_test PRIVATE "STEMMA_MODELS_DIR=\"${PROJECT_SOURCE_DIR}/models\"")
endif()
# Chat templates of many models are read where scripts/get-llama puts them; never committed.
set(stemma_templates "$ENV{STEMMA_LLAMA_DIR}")
if(NOT stemma_templates)
  set(stemma_templates "${PROJECT_SOURCE_DIR}/.deps/llama-v0.5.0")
endif()
foreach(name IN ITEMS jinja_test dialect_test server_test)
  if(TARGET ${name})
    target_compile_definitions(${name} PRIVATE "STEMMA_TEMPLATES_DIR=\"${stemma_templates}/templates\"")
  endif()
endforeach()
if(TARGET engine_llama_test)
  target_link_libraries(engine_llama_test PRIVATE stemma::gguf llama)
endif()
# On real models.
if(TARGET stemma_engine_llama AND TARGET stemma_gguf)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/llama/*.cc")
  stemma_add_tests(llama_test llama ${files} tests/contract/sequence_engine_suite.cc)
  target_link_libraries(llama_test PRIVATE stemma::engine_llama stemma::gguf llama)
  if(TARGET stemma_server)
    target_link_libraries(llama_test PRIVATE stemma::server)
    target_compile_definitions(llama_test PRIVATE STEMMA_HAS_SERVER)
  endif()
endif()
if(TARGET server_test)
  target_link_libraries(server_test PRIVATE Boost::headers nlohmann_json::nlohmann_json)
endif()
if(TARGET json_test)
  target_link_libraries(json_test PRIVATE nlohmann_json::nlohmann_json)
endif()
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
    PASS_REGULAR_EXPRESSION "--requests needs a whole number")
  set_tests_properties(demo.LogitsAreIdentical demo.BadArgumentsAreRefused PROPERTIES
    LABELS program TIMEOUT ${stemma_test_timeout_s})
endif()

if(TARGET stemma AND TARGET crash_program)
  set(store_life "")
  if(TARGET stemma_tiers_shared)
    set(store_life $<TARGET_FILE:store_life>)  # It is made below.
  endif()
  add_test(NAME inspect.TellsWhatAKilledWriterLeft COMMAND python3
    "${PROJECT_SOURCE_DIR}/tests/program/inspect_test.py" $<TARGET_FILE:stemma>
    $<TARGET_FILE:crash_program> ${store_life})
  set_tests_properties(inspect.TellsWhatAKilledWriterLeft PROPERTIES
    LABELS program TIMEOUT ${stemma_test_timeout_s})
endif()

if(TARGET stemma AND TARGET stemma_gguf)
  set(made "${PROJECT_BINARY_DIR}/made.gguf")
  add_test(NAME make_model.WritesAModelOnce COMMAND sh -c
    "rm -f '${made}' && $<TARGET_FILE:stemma> make-model --arch hybrid --dim 64 --out '${made}' && \
     ! $<TARGET_FILE:stemma> make-model --arch llama --out '${made}' && \
     $<TARGET_FILE:stemma> make-model --arch llama --dim 64 --out '${made}' --force && rm '${made}'")
  add_test(NAME make_model.BadShapesAreRefused COMMAND sh -c
    "$<TARGET_FILE:stemma> make-model --arch llama --heads 7 --out '${made}'; test $? = 2")
  set_tests_properties(make_model.BadShapesAreRefused PROPERTIES
    FAIL_REGULAR_EXPRESSION "parameters")
  add_test(NAME make_model.AFullDiskIsAnError COMMAND sh -c
    "$<TARGET_FILE:stemma> make-model --arch llama --force --out /dev/full; test $? = 1")
  set_tests_properties(make_model.WritesAModelOnce make_model.BadShapesAreRefused
    make_model.AFullDiskIsAnError PROPERTIES LABELS program TIMEOUT ${stemma_test_timeout_s})
endif()

# Traces.
if(TARGET stemma)
  set(names "")
  if(NOT STEMMA_SANITIZE)  # Sanitizers reserve more than the test leaves.
    list(APPEND names TooLittleMemoryIsAnError)
  endif()
  foreach(name IN LISTS names ITEMS JsonHasAnObjectPerPolicyAndCapacity TheTableEndsWithARecommendation
          TiersGiveExpectedTimesToFirstToken BadTracesAreNamedByLine BadArgumentsAreRefused
          SmallTracesNeedNoArguments TracesAreMadeAndConverted TheReportIsDrawnInABrowser)
    add_test(NAME replay.${name} COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/program/replay_test.py"
      $<TARGET_FILE:stemma> ${name})
    set_tests_properties(replay.${name} PROPERTIES
      LABELS program TIMEOUT ${stemma_test_timeout_s} SKIP_RETURN_CODE 77)
  endforeach()
endif()

foreach(name IN ITEMS TheSiteLoadsNothingFromElsewhere LinksThatLeadNowhereAreNamed PagesThatNobodyFindsAreNamed)
  add_test(NAME docs.${name} COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/program/docs_test.py" ${name})
  set_tests_properties(docs.${name} PROPERTIES LABELS program TIMEOUT ${stemma_test_timeout_s})
endforeach()

# The data that models/ is trained and judged with.
foreach(name IN ITEMS TextComesBackFromItsTokens PiecesOfANameDependOnNothingBeforeIt
        HeldOutWordsAreNeverTrainedOn AnswersStandInThePrompt TheSameSeedGivesTheSameQuestions
        APlantedModelReadsOtherNumbers ATrainingBelowTheMarginFails)
  add_test(NAME model.${name} COMMAND python3
    "${PROJECT_SOURCE_DIR}/tests/program/model_test.py" ${name})
  set_tests_properties(model.${name} PROPERTIES LABELS program TIMEOUT ${stemma_test_timeout_s})
endforeach()

# `make run` after its build, and the server's end.
if(TARGET stemma AND TARGET stemma_gguf AND TARGET stemma_engine_llama AND TARGET stemma_server
   AND NOT STEMMA_SANITIZE)
  # Wrong state under the right prompts: every answer is wrong, and with its own state every one is
  # right.
  foreach(name IN ITEMS llama window hybrid)
    add_test(NAME model.PlantedStateIsSeenInAnswers.${name} COMMAND python3
      "${PROJECT_SOURCE_DIR}/models/train/evaluate.py" --program $<TARGET_FILE:stemma>
      --model "${PROJECT_SOURCE_DIR}/models/${name}.gguf" --parts planted --state-sheets 1 --planted-tokens 600)
    # What is reused must not depend on how fast this machine computes and copies.
    set_tests_properties(model.PlantedStateIsSeenInAnswers.${name} PROPERTIES LABELS program
      TIMEOUT ${stemma_test_timeout_s} ENVIRONMENT STEMMA_TEST_STILL_CLOCK=1)
  endforeach()
  foreach(name IN ITEMS NoCompilerIsNamed NoGpuIsNamed TheGpusOfTheMachineAreCompiledFor OnceIsEnough
          AFailedBuildLeavesNothingBehind TwoAtOnceCompileOnce TooLittleDiskIsNamed TheServerIsCompiledBeside
          TheMachineDecidesWhatItCanUse TemplatesAreAddedToAFolderWithoutThem)
    add_test(NAME get_llama.${name} COMMAND python3
      "${PROJECT_SOURCE_DIR}/tests/program/get_llama_test.py" ${name})
    set_tests_properties(get_llama.${name} PROPERTIES LABELS program TIMEOUT ${stemma_test_timeout_s})
  endforeach()
  foreach(name IN ITEMS EveryPromptAfterTheFirstIsReused TheShippedModelAnswersFromItsNotes
          ABusyPortIsNamed ABadModelIsNamed SigtermEndsTheServerToo TheServerOutlivesNobody)
    add_test(NAME run.${name} COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/program/run_test.py"
      $<TARGET_FILE:stemma> ${name})
    set_tests_properties(run.${name} PROPERTIES LABELS program TIMEOUT ${stemma_test_timeout_s})
  endforeach()
  foreach(name IN ITEMS EveryRowIsMeasured OnlyWhatWasAskedForIsMeasured WrongUseIsNamed AnInterruptEndsTheServers
          AServerThatDiesIsNamed AnswersAreComparedWithAndWithoutReuse ADifferenceThatIsNoTieCounts
          AGapThatComputingTwiceShowsIsATie
          MetricsAreReadAndCompared BarsAreJudged GrowingMemoryIsNotFlat PromptsShareNothing
          MeasuringWaitsForPinnedMemory AGpuIsAskedAndItsRowsAreJudged)
    add_test(NAME gpu_bench.${name} COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/program/gpu_bench_test.py"
      $<TARGET_FILE:stemma> ${name})
    set_tests_properties(gpu_bench.${name} PROPERTIES LABELS program TIMEOUT ${stemma_test_timeout_s})
  endforeach()
  add_test(NAME serve.RequestsThatAreCutOffHearOfIt COMMAND python3
    "${PROJECT_SOURCE_DIR}/tests/program/serve_test.py" $<TARGET_FILE:stemma>)
  add_test(NAME serve.ListensBeforeTheModelIsThere COMMAND python3
    "${PROJECT_SOURCE_DIR}/tests/program/loading_test.py" $<TARGET_FILE:stemma>)
  set_tests_properties(serve.RequestsThatAreCutOffHearOfIt serve.ListensBeforeTheModelIsThere
    PROPERTIES LABELS program TIMEOUT ${stemma_test_timeout_s})
endif()
# Where a GPU cannot be used. Its plugin is none; the libraries of the release go with it.
if(TARGET stemma AND TARGET stemma_gguf AND TARGET stemma_engine_llama AND TARGET stemma_server
   AND STEMMA_LLAMA_FOLDER AND NOT STEMMA_SANITIZE)
  enable_language(C)
  add_library(fake_gpu MODULE tests/support/fake_gpu.c)
  target_link_libraries(fake_gpu PRIVATE ggml-base)
  foreach(name IN ITEMS ALibraryWithoutCodeForTheGpuIsFoundOutAtTheStart
          WithoutAPluginTheCpuComputesAndSaysWhy ADriverWithoutAGpuIsNamed
          APluginThatCannotBeLoadedIsNamedWithTheLoadersError APluginOfAnotherReleaseIsNamed)
    add_test(NAME gpu.${name} COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/program/gpu_test.py"
      $<TARGET_FILE:stemma> "${STEMMA_LLAMA_BACKENDS}" $<TARGET_FILE:fake_gpu> ${name})
    set_tests_properties(gpu.${name} PROPERTIES LABELS program TIMEOUT ${stemma_test_timeout_s})
  endforeach()
endif()
# The server, as its clients and operators meet it: the program on models that it made itself.
if(TARGET stemma AND TARGET stemma_server AND TARGET stemma_engine_llama AND TARGET stemma_gguf)
  foreach(name IN ITEMS client completions http cache limits cli tiers trace responses ollama anthropic
          model agents)
    add_test(NAME serve.${name} COMMAND "${PROJECT_SOURCE_DIR}/tests/serve/run" ${name}
      $<TARGET_FILE:stemma>)
    set_tests_properties(serve.${name} PROPERTIES
      LABELS serve TIMEOUT ${stemma_test_timeout_s} SKIP_RETURN_CODE 77)
    if(STEMMA_SANITIZE)
      set_tests_properties(serve.${name} PROPERTIES ENVIRONMENT STEMMA_TEST_PATIENCE=10)
    endif()
  endforeach()
endif()
# Clients whose model says what a script says: they need no llama.cpp.
if(TARGET scripted_server)
  add_test(NAME serve.scripted COMMAND "${PROJECT_SOURCE_DIR}/tests/serve/run" scripted
    $<TARGET_FILE:scripted_server>)
  set_tests_properties(serve.scripted PROPERTIES
    LABELS serve TIMEOUT ${stemma_test_timeout_s} SKIP_RETURN_CODE 77)
endif()

# Random answers to random schemas, which ajv judges. The long version, with 1,000 schemas, is in
# .ci/long.
if(TARGET stemma_constrain)
  add_executable(walk_schemas tests/constrain/walk_schemas.cc)
  stemma_configure_target(walk_schemas)
  target_include_directories(walk_schemas PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(walk_schemas PRIVATE stemma_constrain)
  add_test(NAME constrain.AjvAcceptsRandomAnswers COMMAND "${PROJECT_SOURCE_DIR}/tests/constrain/run"
    $<TARGET_FILE:walk_schemas> 120 5)
  set_tests_properties(constrain.AjvAcceptsRandomAnswers PROPERTIES
    LABELS constrain TIMEOUT ${stemma_test_timeout_s} SKIP_RETURN_CODE 77)
  # The same through the server.
  if(TARGET stemma AND TARGET stemma_server AND TARGET stemma_engine_llama AND TARGET stemma_gguf)
    add_test(NAME constrain.AjvAcceptsServedAnswers COMMAND
      "${PROJECT_SOURCE_DIR}/tests/constrain/run" --served $<TARGET_FILE:stemma> 30 3)
    set_tests_properties(constrain.AjvAcceptsServedAnswers PROPERTIES
      LABELS constrain TIMEOUT ${stemma_test_timeout_s} SKIP_RETURN_CODE 77)
  endif()
endif()

# Of equal class, the policy of the example evicts what was used last.
if(TARGET example_own_policy)
  add_test(NAME example.OwnPolicy COMMAND example_own_policy)
  set_tests_properties(example.OwnPolicy PROPERTIES LABELS program TIMEOUT ${stemma_test_timeout_s}
    PASS_REGULAR_EXPRESSION "prompt 1: 64 .*prompt 2: 0 .*prompt 3: 64 .*prompt 4: 64 ")
endif()

# What the guide on tiers shows: the second life finds what the first one stored.
if(TARGET example_tiers_paged)
  add_test(NAME example.TiersPaged COMMAND example_tiers_paged)
  set_tests_properties(example.TiersPaged PROPERTIES PASS_REGULAR_EXPRESSION "\n96 of 100 tokens")
  add_test(NAME example.TiersSequences COMMAND example_tiers_sequences)
  if(TARGET example_c_store_blocks)
    add_test(NAME example.StoreBlocks COMMAND sh -c "rm -rf store_blocks.test && \
      $<TARGET_FILE:example_c_store_blocks> store_blocks.test && \
      $<TARGET_FILE:example_c_store_blocks> store_blocks.test; rm -rf store_blocks.test")
    set_tests_properties(example.StoreBlocks PROPERTIES LABELS program
      TIMEOUT ${stemma_test_timeout_s} WORKING_DIRECTORY "${PROJECT_BINARY_DIR}"
      PASS_REGULAR_EXPRESSION "\n8 of 8 blocks are there.*\n8 came back")
  endif()
  set_tests_properties(example.TiersSequences PROPERTIES
    PASS_REGULAR_EXPRESSION "\n499 of 500 tokens")
  set_tests_properties(example.TiersPaged example.TiersSequences PROPERTIES
    LABELS program TIMEOUT ${stemma_test_timeout_s})
endif()

if(TARGET example_c_move_blocks)
  add_test(NAME example.MoveBlocks COMMAND example_c_move_blocks)
  set_tests_properties(example.MoveBlocks PROPERTIES LABELS program TIMEOUT ${stemma_test_timeout_s}
    PASS_REGULAR_EXPRESSION "page 3 has k and v")
endif()

# OpenSSL judges our own hashing, in tests only.
if(TARGET key_test)
  find_package(OpenSSL REQUIRED COMPONENTS Crypto)
  target_link_libraries(key_test PRIVATE OpenSSL::Crypto)
endif()

# The Python package, with numpy alone. The system's interpreter comes first: scripts/bootstrap
# installs its numpy.
if(TARGET python_libraries AND NOT STEMMA_SANITIZE AND NOT STEMMA_COVERAGE)
  foreach(candidate IN ITEMS /usr/bin/python3 python3)
    if(NOT STEMMA_TEST_PYTHON)
      execute_process(COMMAND "${candidate}" -c "import numpy" RESULT_VARIABLE no_numpy OUTPUT_QUIET ERROR_QUIET)
      if(no_numpy EQUAL 0)
        set(STEMMA_TEST_PYTHON "${candidate}" CACHE STRING "A Python with numpy, for the package's tests")
      endif()
    endif()
  endforeach()
  if(STEMMA_TEST_PYTHON)
    file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/tests/test_*.py")
    set(environment "PYTHONPATH=${PROJECT_SOURCE_DIR}/python" "STEMMA_LIBRARY_PATH=${PROJECT_BINARY_DIR}"
        PYTHONDONTWRITEBYTECODE=1)
    if(TARGET stemma)
      list(APPEND environment "STEMMA_PROGRAM=$<TARGET_FILE:stemma>")
    endif()
    foreach(file IN LISTS files)
      get_filename_component(name "${file}" NAME_WE)
      add_test(NAME python.${name} COMMAND "${STEMMA_TEST_PYTHON}" -W error "${file}")
      set_tests_properties(python.${name} PROPERTIES
        LABELS python TIMEOUT ${stemma_test_timeout_s} ENVIRONMENT "${environment}")
    endforeach()
  else()
    message(STATUS "stemma: no Python with numpy (python3-numpy), so the package's tests are left out")
  endif()
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
if(TARGET stemma_tiers_shared AND TARGET stemma_tier_disk)
  add_executable(tiers_life tests/package/tiers_life.c)
  target_compile_options(tiers_life PRIVATE -std=c99 -Wall -Wextra -pedantic -Werror)
  target_link_libraries(tiers_life PRIVATE stemma::tiers)
  add_test(NAME Package.TiersLife COMMAND sh -c
    "rm -rf tiers_life.store && $<TARGET_FILE:tiers_life> tiers_life.store; result=$?; \
     rm -rf tiers_life.store; exit $result")
  add_executable(store_life tests/package/store_life.c)
  target_compile_options(store_life PRIVATE -std=c99 -Wall -Wextra -pedantic -Werror)
  target_link_libraries(store_life PRIVATE stemma::tiers)
  add_test(NAME Package.StoreLife COMMAND sh -c
    "rm -rf store_life.store && $<TARGET_FILE:store_life> store_life.store; result=$?; \
     rm -rf store_life.store; exit $result")
  set_tests_properties(Package.TiersLife Package.StoreLife PROPERTIES
    LABELS package TIMEOUT ${stemma_test_timeout_s} WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
endif()
if(TARGET stemma_mover_shared)
  add_executable(mover_life tests/package/mover_life.c)
  target_compile_options(mover_life PRIVATE -std=c99 -Wall -Wextra -pedantic -Werror)
  target_link_libraries(mover_life PRIVATE stemma::mover)
  add_test(NAME Package.MoverLife COMMAND mover_life)
  set_tests_properties(Package.MoverLife PROPERTIES LABELS package TIMEOUT ${stemma_test_timeout_s})
endif()

# The others start from an installation, of libraries that any compiler may link.
if(STEMMA_DEVELOPER_MODE AND STEMMA_INSTALL AND NOT STEMMA_SANITIZE AND NOT STEMMA_COVERAGE)
  set(run "${PROJECT_SOURCE_DIR}/tests/package/run")
  add_test(NAME Package.Abi COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/package/abi.py"
    --library $<TARGET_FILE:stemma_shared>)
  if(TARGET stemma_tiers_shared)
    add_test(NAME Package.AbiOfTiers COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/package/abi.py"
      --tiers --library $<TARGET_FILE:stemma_tiers_shared>)
    set_tests_properties(Package.AbiOfTiers PROPERTIES LABELS package TIMEOUT ${stemma_test_timeout_s})
  endif()
  if(TARGET stemma_mover_shared)
    add_test(NAME Package.AbiOfMover COMMAND python3 "${PROJECT_SOURCE_DIR}/tests/package/abi.py"
      --mover --library $<TARGET_FILE:stemma_mover_shared>)
    set_tests_properties(Package.AbiOfMover PROPERTIES LABELS package TIMEOUT ${stemma_test_timeout_s})
  endif()
  add_test(NAME Package.Install COMMAND "${run}" install "${PROJECT_BINARY_DIR}")
  set_tests_properties(Package.Install PROPERTIES FIXTURES_SETUP stemma_installed)
  add_test(NAME Package.FindPackageCpp COMMAND "${run}" find_package_cpp "${PROJECT_BINARY_DIR}")
  if(TARGET stemma_tier_disk)
    add_test(NAME Package.FindPackageTiers COMMAND "${run}" find_package_tiers "${PROJECT_BINARY_DIR}")
    set_tests_properties(Package.FindPackageTiers PROPERTIES
      FIXTURES_REQUIRED stemma_installed LABELS package TIMEOUT ${stemma_test_timeout_s})
  endif()
  add_test(NAME Package.FindPackageC COMMAND "${run}" find_package_c "${PROJECT_BINARY_DIR}")
  add_test(NAME Package.PkgConfig COMMAND "${run}" pkg_config "${PROJECT_BINARY_DIR}")
  set_tests_properties(Package.FindPackageCpp Package.FindPackageC Package.PkgConfig PROPERTIES
    FIXTURES_REQUIRED stemma_installed)
  add_test(NAME Package.AddSubdirectory COMMAND "${run}" add_subdirectory "${PROJECT_BINARY_DIR}")
  add_test(NAME Package.Deb COMMAND "${run}" deb "${PROJECT_BINARY_DIR}")
  set_tests_properties(Package.Abi Package.Install Package.FindPackageCpp Package.FindPackageC
    Package.PkgConfig Package.AddSubdirectory Package.Deb PROPERTIES LABELS package TIMEOUT ${stemma_test_timeout_s})
  # It compiles the libraries that it links.
  set_tests_properties(Package.AddSubdirectory PROPERTIES TIMEOUT 3600)
endif()
set_tests_properties(Package.RequestLife Package.SequenceLife PROPERTIES LABELS package TIMEOUT ${stemma_test_timeout_s})

# What the types promise not to allow.
if(NOT STEMMA_SANITIZE AND NOT STEMMA_COVERAGE)
  add_test(NAME Compile.MistakesAreRefused COMMAND
    "${PROJECT_SOURCE_DIR}/tests/compile/run" "${CMAKE_CXX_COMPILER}")
  set_tests_properties(Compile.MistakesAreRefused PROPERTIES LABELS package TIMEOUT ${stemma_test_timeout_s})
endif()

# What takes longest begins first, so that nothing long is left alone at the end.
foreach(name IN ITEMS Package.AddSubdirectory Package.Deb serve.agents serve.tiers serve.cli serve.cache
        serve.limits redis.cluster redis.hostile gpu_bench.EveryRowIsMeasured python.test_store
        constrain.AjvAcceptsServedAnswers)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endforeach()
