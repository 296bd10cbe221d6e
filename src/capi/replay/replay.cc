// stemma_replay_run(), built on the code of `stemma replay`.
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "capi/replay/stemma_replay.h"
#include "replay/arguments.h"
#include "replay/sweep.h"

using namespace stemma;

namespace {

constexpr const char* kCall = "stemma_replay_run";
constexpr size_t kMostWords = 4096;

stemma_status fail(stemma_status status, const std::string& message) noexcept {
  return stemma_fail(kCall, status, message.c_str(), UINT32_MAX);
}

// Refuses arguments that make the program write, draw or read standard input: not in a library.
std::string refused(const replay::ReplayArguments& arguments) {
  if (arguments.help) return "--help belongs to the program";
  if (arguments.json) return "--json belongs to the program; rows come as structs here";
  if (!arguments.report.empty()) return "--report belongs to the program";
  if (!arguments.model.tiers.empty()) return "--tiers belongs to the program";
  if (arguments.trace == "-") return "standard input cannot be replayed from here; give a file";
  return {};
}

struct Outcome {
  replay::Trace trace;
  std::vector<replay::ReplayResult> results;
  uint64_t skipped = 0;
};

stemma_status replay_all(const replay::ReplayArguments& arguments, Outcome& out) {
  replay::LoadReport report;
  std::string problem = replay::load_trace(
      arguments.trace, {.lenient = arguments.lenient, .block_tokens = arguments.block_tokens},
      out.trace, report);
  if (!problem.empty()) return fail(STEMMA_CORRUPT, problem);
  out.skipped = report.skipped;
  replay::SweepOptions options;
  options.policies = arguments.policies;
  options.hints = arguments.hints;
  options.threads =
      arguments.threads != 0 ? arguments.threads : std::thread::hardware_concurrency();
  problem = replay::capacities_of(arguments, out.trace, options.capacities);
  if (!problem.empty()) return fail(STEMMA_INVALID_ARGUMENT, problem);
  problem = replay::sweep(out.trace, options, out.results);
  return problem.empty() ? STEMMA_OK : fail(STEMMA_OUT_OF_MEMORY, problem);
}

stemma_replay_row row_of(const Outcome& outcome, const replay::ReplayResult& result) {
  stemma_replay_row row{};
  row.struct_size = sizeof row;
  row.hints = result.hints ? 1 : 0;
  row.trace = outcome.trace.name.c_str();
  row.policy = result.policy.c_str();
  row.capacity_blocks = result.capacity_blocks;
  row.block_tokens = outcome.trace.block_tokens;
  row.requests = result.requests;
  row.block_refs = result.block_refs;
  row.block_hits = result.block_hits;
  row.hit_ratio = result.hit_ratio();
  row.cost_weighted_hit_ratio = result.weighted_hit_ratio();
  row.evictions = result.evictions;
  row.seconds = result.seconds;
  return row;
}

stemma_status run(const char* const* words, size_t count, stemma_replay_row_fn each, void* user,
                  uint64_t* skipped) {
  if (words == nullptr && count != 0) return fail(STEMMA_INVALID_ARGUMENT, "words is null");
  if (each == nullptr) return fail(STEMMA_INVALID_ARGUMENT, "each is null");
  if (count > kMostWords) return fail(STEMMA_INVALID_ARGUMENT, "count is more than 4,096 words");
  std::vector<std::string_view> views;
  for (size_t i = 0; i < count; ++i) {
    if (words[i] == nullptr) return fail(STEMMA_INVALID_ARGUMENT, "one of the words is null");
    views.emplace_back(words[i]);
  }
  replay::ReplayArguments arguments;
  std::string problem = replay::parse_replay(views, arguments);
  if (problem.empty()) problem = refused(arguments);
  if (!problem.empty()) return fail(STEMMA_INVALID_ARGUMENT, problem);
  Outcome outcome;
  if (const stemma_status status = replay_all(arguments, outcome); status != STEMMA_OK) {
    return status;
  }
  if (skipped != nullptr) *skipped = outcome.skipped;
  for (const replay::ReplayResult& result : outcome.results) {
    const stemma_replay_row row = row_of(outcome, result);
    each(user, &row);
  }
  return STEMMA_OK;
}

}  // namespace

stemma_status stemma_replay_run(const char* const* words, size_t count, stemma_replay_row_fn each,
                                void* user, uint64_t* skipped) {
  try {
    return run(words, count, each, user, skipped);
  } catch (const std::bad_alloc&) {
    return fail(STEMMA_OUT_OF_MEMORY, "the system gave no memory");
  } catch (const std::exception& error) {
    return fail(STEMMA_CORRUPT, error.what());
  }
}
