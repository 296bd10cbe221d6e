#include "bench/sequences/baseline_llama_server.h"

#include <algorithm>
#include <utility>

namespace stemma::bench::sequences {
namespace {

constexpr double kSimilar = 0.10;   // Of the prompt, for a slot to be chosen.
constexpr double kKeep = 0.50;      // Of the slot, for it not to be saved first.
constexpr double kLoadKeep = 0.25;  // Of an entry, for it to be loaded.
constexpr uint32_t kLast = 4;       // Tokens computed apart at the end of a prompt.

double fraction(uint32_t part, size_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

uint64_t bytes_of(const auto& checkpoints) {
  uint64_t bytes = 0;
  for (const auto& checkpoint : checkpoints) bytes += checkpoint.bytes.size();
  return bytes;
}

// Where the user's messages begin, the last of them at the back.
std::vector<uint32_t> user_starts(const Request& request) {
  std::vector<uint32_t> starts;
  uint32_t begin = 0;
  for (const Message& message : request.messages) {
    if (message.role == Role::user) starts.push_back(begin);
    begin = message.end;
  }
  return starts;
}

}  // namespace

uint64_t LlamaServer::Entry::bytes() const { return state.size() + bytes_of(checkpoints); }

LlamaServer::LlamaServer(const Setting& setting, bool idle_slots_saved)
    : BaselinePolicy(setting), idle_slots_saved_(idle_slots_saved), slots_(setting.sequences) {}

uint64_t LlamaServer::stored_bytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.bytes();
  for (const Slot& slot : slots_) bytes += bytes_of(slot.checkpoints);
  return bytes;
}

// Makes room for this many more bytes by removing the oldest entries.
void LlamaServer::make_room(uint64_t bytes) {
  while (!entries_.empty() && stored_bytes() + bytes > budget_bytes()) entries_.pop_front();
}

uint32_t LlamaServer::choose(const Tokens& prompt, bool* update) {
  double most = 0;
  uint32_t chosen = 0;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].tokens.empty()) continue;
    const double similar = fraction(common_prefix(slots_[i].tokens, prompt), prompt.size());
    if (similar <= most || similar <= kSimilar) continue;
    most = similar;
    chosen = i;
  }
  if (most > 0) {
    const Slot& slot = slots_[chosen];
    *update = fraction(common_prefix(slot.tokens, prompt), slot.tokens.size()) < kKeep;
    return chosen;
  }
  for (uint32_t i = 1; i < slots_.size(); ++i) {
    if (slots_[i].last_used <= slots_[chosen].last_used) chosen = i;
  }
  *update = true;
  return chosen;
}

void LlamaServer::clear_slot(uint32_t number) {
  clear(SequenceId{number});
  slots_[number].tokens.clear();
  slots_[number].checkpoints.clear();
}

void LlamaServer::save_slot(uint32_t number) {
  const Slot& slot = slots_[number];
  if (slot.tokens.empty()) return;
  for (const Entry& entry : entries_) {
    if (common_prefix(entry.tokens, slot.tokens) == slot.tokens.size()) return;
  }
  std::erase_if(entries_, [&](const Entry& entry) {
    return common_prefix(entry.tokens, slot.tokens) == entry.tokens.size();
  });
  const auto length = static_cast<uint32_t>(slot.tokens.size());
  Entry entry{.tokens = slot.tokens,
              .state = save(SequenceId{number}, Part::state, {0, length}),
              .checkpoints = slot.checkpoints};
  make_room(entry.bytes());
  if (stored_bytes() + entry.bytes() <= budget_bytes()) entries_.push_back(std::move(entry));
}

void LlamaServer::load_better(uint32_t number, const Tokens& prompt) {
  Slot& slot = slots_[number];
  const uint32_t live = common_prefix(slot.tokens, prompt);
  double most_kept = slot.tokens.empty() ? -1 : fraction(live, slot.tokens.size());
  double most_similar = fraction(live, prompt.size());
  auto best = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const uint32_t common = common_prefix(entry->tokens, prompt);
    const double kept = fraction(common, entry->tokens.size());
    const double similar = fraction(common, prompt.size());
    if (kept < kLoadKeep || kept <= most_kept || similar <= most_similar) continue;
    most_kept = kept;
    most_similar = similar;
    best = entry;
  }
  if (best == entries_.end()) return;
  clear_slot(number);
  // Without room for it the slot starts empty, and the entry stays.
  const auto length = static_cast<uint32_t>(best->tokens.size());
  if (!load(SequenceId{number}, Part::state, {0, length}, best->state)) return;
  slot.tokens = std::move(best->tokens);
  slot.checkpoints = std::move(best->checkpoints);
  entries_.erase(best);
}

uint32_t LlamaServer::keep(uint32_t number, const Tokens& prompt) {
  Slot& slot = slots_[number];
  const SequenceId sequence{number};
  uint32_t n = common_prefix(slot.tokens, prompt);
  const bool more = n < prompt.size();
  if (n > 0 && setting_.model != Model::full) {
    const uint32_t reach = (setting_.model == Model::window ? kWindowTokens : 0) + (more ? 0 : 1);
    const uint32_t threshold = n - std::min(n, reach);
    if (engine_.held(sequence).begin >= threshold) {
      const auto found = std::find_if(
          slot.checkpoints.rbegin(), slot.checkpoints.rend(), [&](const Checkpoint& c) {
            return c.depth <= n && c.depth < prompt.size() && (c.first < threshold || c.first == 0);
          });
      n = 0;
      if (found != slot.checkpoints.rend() &&
          load(sequence, Part::checkpoint, {0, found->depth}, found->bytes)) {
        n = found->depth;
      }
    }
  }
  std::erase_if(slot.checkpoints, [&](const Checkpoint& c) { return c.depth > n; });
  if (n == prompt.size()) --n;
  return n;
}

BaselinePolicy::Start LlamaServer::start(const Request& request) {
  ++now_;
  bool update = false;
  const uint32_t number = choose(request.prompt, &update);
  if (update) {
    save_slot(number);
    load_better(number, request.prompt);
  }
  for (uint32_t i = 0; idle_slots_saved_ && i < slots_.size(); ++i) {
    if (i == number) continue;
    save_slot(i);
    clear_slot(i);
  }
  Slot& slot = slots_[number];
  slot.last_used = now_;
  const uint32_t n = keep(number, request.prompt);
  trim(SequenceId{number}, n);
  slot.tokens.assign(request.prompt.begin(), request.prompt.begin() + n);
  return {.sequence = SequenceId{number}, .reused = n};
}

bool LlamaServer::far_enough(const Slot& slot, uint32_t depth) const {
  return slot.checkpoints.empty() || depth > slot.checkpoints.back().depth + kCheckpointStep;
}

uint32_t LlamaServer::chunk_end(const Request& request, uint32_t begin) {
  const auto size = static_cast<uint32_t>(request.prompt.size());
  if (setting_.model == Model::full) return size;
  uint32_t end = size;
  for (const uint32_t offset : {kLast + kBatchTokens, kLast}) {
    if (size > offset && size - offset > begin) end = std::min(end, size - offset);
  }
  const std::vector<uint32_t> starts = user_starts(request);
  // The running slot is the one used last.
  const Slot& slot = *std::ranges::max_element(slots_, {}, &Slot::last_used);
  for (const uint32_t start : starts) {
    if (start <= begin) continue;
    if (start == starts.back() || far_enough(slot, start)) end = std::min(end, start);
  }
  return end;
}

void LlamaServer::before_chunk(const Request& request, SequenceId sequence, Range chunk) {
  if (setting_.model == Model::full || chunk.begin == 0) return;
  const auto size = static_cast<uint32_t>(request.prompt.size());
  const std::vector<uint32_t> starts = user_starts(request);
  const bool user_start = std::ranges::find(starts, chunk.begin) != starts.end();
  const bool last_user = user_start && chunk.begin == starts.back();
  const bool near_end = size < chunk.end + kBatchTokens;
  Slot& slot = slots_[to_index(sequence)];
  if (!user_start && !near_end) return;
  if (!last_user && !near_end && !far_enough(slot, chunk.begin)) return;
  std::erase_if(slot.checkpoints, [&](const Checkpoint& c) { return c.depth == chunk.begin; });
  Checkpoint made{.depth = chunk.begin,
                  .first = engine_.held(sequence).begin,
                  .bytes = save(sequence, Part::checkpoint, {0, chunk.begin})};
  while (slot.checkpoints.size() >= kCheckpoints) slot.checkpoints.pop_front();
  make_room(made.bytes.size());
  while (!slot.checkpoints.empty() && stored_bytes() + made.bytes.size() > budget_bytes()) {
    slot.checkpoints.pop_front();
  }
  if (stored_bytes() + made.bytes.size() <= budget_bytes()) {
    slot.checkpoints.push_back(std::move(made));
  }
}

void LlamaServer::finish(const Request& request, SequenceId sequence) {
  slots_[to_index(sequence)].tokens = request.whole();
}

// Purges another slot, without saving it.
bool LlamaServer::give_up_room(SequenceId working) {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (i == to_index(working) || slots_[i].tokens.empty()) continue;
    clear_slot(i);
    return true;
  }
  return false;
}

}  // namespace stemma::bench::sequences
