# Usage: include()d when STEMMA_BUILD_FUZZ is on; every fuzz/<name>_fuzz.cc becomes <name>_fuzz.

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "stemma: fuzz targets need clang; use the fuzz preset")
endif()

target_compile_options(stemma_core PRIVATE -fsanitize=fuzzer-no-link)
target_compile_options(stemma_capi PRIVATE -fsanitize=fuzzer-no-link)
foreach(part IN ITEMS constrain dialect jinja json replay)
  if(TARGET stemma_${part})
    target_compile_options(stemma_${part} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endforeach()
file(GLOB fuzz_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/fuzz/*_fuzz.cc")
foreach(source IN LISTS fuzz_sources)
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  stemma_configure_target(${name})
  target_include_directories(${name} PRIVATE
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/fuzz")
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE stemma_capi stemma::core)
  foreach(part IN ITEMS constrain dialect jinja json replay)
    if(TARGET stemma_${part})
      target_link_libraries(${name} PRIVATE stemma_${part})
    endif()
  endforeach()
endforeach()

foreach(name IN ITEMS gbnf_fuzz matcher_fuzz schema_fuzz)
  if(TARGET ${name} AND NOT TARGET stemma_constrain)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endforeach()

# The server's codecs are built from their sources: the server itself needs more than fuzzing does.
set(stemma_api_sources api/error api/fields api/options api/prompts api/random_id api/request
  api/tool_names api/openai/answer api/openai/embeddings api/openai/message api/openai/request
  api/openai/tools)
set(api_request_fuzz_sources ${stemma_api_sources} schedule/sampler schedule/stop)
set(agent_apis_fuzz_sources ${stemma_api_sources} api/anthropic/blocks api/anthropic/error
  api/anthropic/request api/anthropic/writer api/ollama/request api/ollama/writer api/responses/items
  api/responses/request api/responses/store api/responses/tools api/responses/writer)
foreach(target IN ITEMS api_request_fuzz agent_apis_fuzz)
  if(TARGET ${target} AND TARGET stemma_json)
    foreach(name IN LISTS ${target}_sources)
      target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src/server/${name}.cc")
    endforeach()
  elseif(TARGET ${target})
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endforeach()

# The decoder of transcripts.
if(TARGET transcript_fuzz AND TARGET stemma_json)
  foreach(name IN ITEMS chat/meaning chat/transcript_entry api/request)
    target_sources(transcript_fuzz PRIVATE "${PROJECT_SOURCE_DIR}/src/server/${name}.cc")
  endforeach()
elseif(TARGET transcript_fuzz)
  set_target_properties(transcript_fuzz PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

# The parts of the Redis tier that read what a server says, without its sockets.
find_path(STEMMA_XXHASH_DIR xxhash.h)
if(TARGET resp_fuzz AND STEMMA_XXHASH_DIR)
  foreach(name IN ITEMS batch entry redis/resp redis/slots redis/value_reader)
    target_sources(resp_fuzz PRIVATE "${PROJECT_SOURCE_DIR}/src/tier/${name}.cc")
  endforeach()
  target_include_directories(resp_fuzz SYSTEM PRIVATE "${STEMMA_XXHASH_DIR}")
elseif(TARGET resp_fuzz)
  set_target_properties(resp_fuzz PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

# The decoder of what stands before an object's value, without tiers.
if(TARGET envelope_fuzz AND STEMMA_XXHASH_DIR)
  foreach(name IN ITEMS batch entry object/envelope object/sha256_lanes object/space)
    target_sources(envelope_fuzz PRIVATE "${PROJECT_SOURCE_DIR}/src/tier/${name}.cc")
  endforeach()
  target_include_directories(envelope_fuzz SYSTEM PRIVATE "${STEMMA_XXHASH_DIR}")
elseif(TARGET envelope_fuzz)
  set_target_properties(envelope_fuzz PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

# The decoders of sealed entries and of key files, without threads and directories.
find_package(OpenSSL QUIET)
if(TARGET seal_fuzz AND OPENSSL_FOUND)
  foreach(name IN ITEMS aes_gcm_ipsec_mb aes_gcm_openssl cipher key_file scope_key sealed_entry)
    target_sources(seal_fuzz PRIVATE "${PROJECT_SOURCE_DIR}/src/tier/seal/${name}.cc")
  endforeach()
  target_link_libraries(seal_fuzz PRIVATE OpenSSL::Crypto)
elseif(TARGET seal_fuzz)
  set_target_properties(seal_fuzz PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
