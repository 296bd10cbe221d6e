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

#   stemma::gguf           writes small models as GGUF files
stemma_glob(gguf_sources "src/engine/gguf/*.cc")
if(gguf_sources)
  add_library(stemma_gguf STATIC ${gguf_sources})
  add_library(stemma::gguf ALIAS stemma_gguf)
  stemma_configure_target(stemma_gguf)
  target_include_directories(stemma_gguf PUBLIC "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(stemma_gguf PUBLIC stemma::core)
endif()

#   stemma::engine_llama   llama.cpp as an engine, where it is found
include(cmake/StemmaLlama.cmake)
stemma_glob(engine_llama_sources "src/engine/llama/*.cc")
if(STEMMA_LLAMA_FOUND AND engine_llama_sources)
  add_library(stemma_engine_llama STATIC ${engine_llama_sources})
  add_library(stemma::engine_llama ALIAS stemma_engine_llama)
  stemma_configure_target(stemma_engine_llama)
  target_include_directories(stemma_engine_llama PUBLIC "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(stemma_engine_llama PUBLIC stemma::core PRIVATE llama)
  target_link_libraries(stemma_engine_llama PRIVATE ${CMAKE_DL_LIBS})
  target_compile_definitions(stemma_engine_llama PRIVATE
    "STEMMA_LLAMA_RELEASE=\"${STEMMA_LLAMA_RELEASE}\"")
endif()

#   stemma::jinja          chat templates
stemma_glob(jinja_sources "src/jinja/*.cc")
if(jinja_sources)
  add_library(stemma_jinja STATIC ${jinja_sources})
  add_library(stemma::jinja ALIAS stemma_jinja)
  stemma_configure_target(stemma_jinja)
  target_include_directories(stemma_jinja PUBLIC "${PROJECT_SOURCE_DIR}/src")
endif()

#   stemma::dialect        how models write thinking and tool calls
stemma_glob(dialect_sources "src/dialect/*.cc" "src/dialect/values/*.cc")
if(dialect_sources AND TARGET stemma_jinja)
  add_library(stemma_dialect STATIC ${dialect_sources})
  add_library(stemma::dialect ALIAS stemma_dialect)
  stemma_configure_target(stemma_dialect)
  target_include_directories(stemma_dialect PUBLIC "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(stemma_dialect PUBLIC stemma::jinja)
endif()

#   stemma::json           JSON documents as values, within limits
find_package(nlohmann_json 3.11 QUIET)
stemma_glob(json_sources "src/json/*.cc")
list(FILTER json_sources EXCLUDE REGEX "/(write|utf8)\\.cc$")
if(nlohmann_json_FOUND)
  add_library(stemma_json STATIC ${json_sources})
  add_library(stemma::json ALIAS stemma_json)
  stemma_configure_target(stemma_json)
  target_include_directories(stemma_json PUBLIC "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(stemma_json PUBLIC stemma_json_write PRIVATE nlohmann_json::nlohmann_json)
endif()

#   stemma::constrain      answers that must have a form: JSON schemas and grammars
stemma_glob(constrain_sources "src/constrain/*.cc" "src/constrain/schema/*.cc")
if(TARGET stemma_json AND constrain_sources)
  add_library(stemma_constrain STATIC ${constrain_sources})
  add_library(stemma::constrain ALIAS stemma_constrain)
  stemma_configure_target(stemma_constrain)
  target_include_directories(stemma_constrain PUBLIC "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(stemma_constrain PUBLIC stemma::json)
endif()

#   stemma::server         HTTP in, SequenceCache and a LanguageModel behind it
find_package(Boost 1.74 QUIET)
find_path(STEMMA_TOMLPP_DIR toml++/toml.h)
stemma_glob(server_sources "src/server/*.cc" "src/server/*/*.cc" "src/server/*/*/*.cc")
if(server_sources AND Boost_FOUND AND TARGET stemma_json AND STEMMA_TOMLPP_DIR AND TARGET stemma_tier)
  add_library(stemma_server STATIC ${server_sources})
  add_library(stemma::server ALIAS stemma_server)
  stemma_configure_target(stemma_server)
  target_include_directories(stemma_server PUBLIC "${PROJECT_SOURCE_DIR}/src")
  target_include_directories(stemma_server SYSTEM PRIVATE "${STEMMA_TOMLPP_DIR}")
  target_link_libraries(stemma_server PUBLIC stemma::core stemma::json stemma::tier
    PRIVATE Boost::headers)
  foreach(part IN ITEMS jinja dialect constrain)
    if(TARGET stemma::${part})
      target_link_libraries(stemma_server PUBLIC stemma::${part})
    endif()
  endforeach()
  # Equal seeds give equal tokens on every machine: no operation is fused with another one here and
  # not there. Its loops over the vocabulary are written to be vectorised.
  if(EXISTS "${PROJECT_SOURCE_DIR}/src/server/schedule/sampler.cc")
    set_source_files_properties("${PROJECT_SOURCE_DIR}/src/server/schedule/sampler.cc" PROPERTIES
      COMPILE_OPTIONS "-ffp-contract=off;-fno-trapping-math;$<$<NOT:$<BOOL:${STEMMA_COVERAGE}>>:-O3>")
  endif()
endif()
