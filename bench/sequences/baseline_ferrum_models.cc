#include "bench/sequences/baseline_ferrum_models.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/random.h"

namespace stemma::bench::sequences {
namespace {

constexpr uint64_t kBlobHeaderBytes = 20;  // Of the fake engine, in every segment.

}  // namespace

FerrumModels::FerrumModels(const Setting& setting) : BaselinePolicy(setting) {
  const uint64_t block_bytes = kBlockTokens * kTokenBytes + kBlobHeaderBytes;
  blocks_.resize(setting.total_bytes() / block_bytes);
  for (auto i = static_cast<uint32_t>(blocks_.size()); i > 0; --i) free_.push_back(i - 1);
}

std::vector<uint64_t> FerrumModels::keys_of(const Tokens& prompt) {
  std::vector<uint64_t> keys;
  uint64_t key = 0;
  for (size_t i = 0; i < prompt.size(); ++i) {
    key = base::mix(key, prompt[i]);
    if ((i + 1) % kBlockTokens == 0) keys.push_back(key);
  }
  return keys;
}

void FerrumModels::forget(uint32_t number) {
  Block& block = blocks_[number];
  stored_bytes_ -= block.bytes.size();
  const auto named = by_key_.find(block.key);
  if (named != by_key_.end() && named->second == number) by_key_.erase(named);
  block = {};
}

uint32_t FerrumModels::allocate() {
  if (free_.empty()) throw std::runtime_error("ferrum-models has no block left");
  const auto nameless =
      std::find_if(free_.rbegin(), free_.rend(), [&](uint32_t b) { return blocks_[b].key == 0; });
  if (nameless != free_.rend()) std::swap(*nameless, free_.back());
  const uint32_t block = free_.back();
  free_.pop_back();
  forget(block);
  blocks_[block].users = 1;
  return block;
}

BaselinePolicy::Start FerrumModels::start(const Request& request) {
  table_.clear();
  if (setting_.model != Model::full) return {.sequence = kWorking, .reused = 0};
  for (const uint64_t key : keys_of(request.prompt)) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) break;
    Block& block = blocks_[found->second];
    if (block.users++ == 0) std::erase(free_, found->second);
    table_.push_back(found->second);
  }
  auto usable = static_cast<uint32_t>(table_.size());
  if (usable * kBlockTokens == request.prompt.size() && usable > 0) --usable;
  for (uint32_t i = 0; i < usable; ++i) {
    const Range range{i * kBlockTokens, (i + 1) * kBlockTokens};
    if (!load(kWorking, Part::segment, range, blocks_[table_[i]].bytes)) {
      throw std::runtime_error("ferrum-models cannot load a block");
    }
  }
  return {.sequence = kWorking, .reused = usable * kBlockTokens};
}

void FerrumModels::prompt_done(const Request& request, SequenceId sequence) {
  if (setting_.model != Model::full) return;
  const std::vector<uint64_t> keys = keys_of(request.prompt);
  const size_t words = request.prompt.size() + request.answer.size();
  const size_t acquired = table_.size();
  while (table_.size() * kBlockTokens < words) table_.push_back(allocate());
  for (size_t i = acquired; i < keys.size(); ++i) {
    Block& block = blocks_[table_[i]];
    const auto begin = static_cast<uint32_t>(i) * kBlockTokens;
    block.bytes = save(sequence, Part::segment, {begin, begin + kBlockTokens});
    block.key = keys[i];
    stored_bytes_ += block.bytes.size();
    by_key_[keys[i]] = table_[i];
  }
}

void FerrumModels::finish(const Request& /*request*/, SequenceId sequence) {
  clear(sequence);
  for (const uint32_t block : table_) {
    if (--blocks_[block].users == 0) free_.push_back(block);
  }
}

}  // namespace stemma::bench::sequences
