#include "support/fake_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/random.h"

namespace stemma::test {

namespace {

constexpr std::string_view kSpecials[] = {"<|bos|>", "<|im_start|>", "<|im_end|>"};

constexpr std::string_view kTemplate =
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

FakeModel::FakeModel(const FakeSequences::Options& options, uint32_t batch_tokens)
    : options_(options), sequences_(options) {
  info_.name = "fake";
  info_.architecture = "fake";
  info_.description = "no model at all";
  info_.chat_template = kTemplate;
  info_.vocabulary = kVocabulary;
  info_.trained_tokens = options.context_tokens;
  info_.batch_tokens = batch_tokens;
  info_.bos_text = kSpecials[0];
  info_.eos_text = kSpecials[2];
  info_.adds_bos = true;
  info_.scope.model = "fake " + std::to_string(options.model);
}

FakeModel::Hold::Hold(FakeModel& model) : model_(model) {
  const std::lock_guard lock(model_.mutex_);
  model_.held_ = true;
}

bool FakeModel::Hold::wait() {
  std::unique_lock lock(model_.mutex_);
  return model_.changed_.wait_for(lock, std::chrono::minutes(2),
                                  [&] { return model_.pass_waits_; });
}

void FakeModel::Hold::let_go() {
  const std::lock_guard lock(model_.mutex_);
  model_.held_ = false;
  model_.changed_.notify_all();
}

void FakeModel::fill_logits(uint64_t value, std::vector<float>& logits) {
  logits.assign(kVocabulary, -20.0F);
  for (Token token = ' '; token < 127; ++token) {
    logits[token] = static_cast<float>(base::mix(value, token) % 4096) / 512.0F;
  }
  if (base::mix(value) % 40 == 0) logits[kEnd] = 12.0F;
}

Result<void> FakeModel::decode(std::span<const engine::BatchItem> batch) {
  std::vector<SequenceId> sequences;
  for (const engine::BatchItem& item : batch) {
    if (std::ranges::find(sequences, item.sequence) == sequences.end())
      sequences.push_back(item.sequence);
  }
  if (most_sequences != 0 && sequences.size() > most_sequences) {
    return Error(Errc::out_of_blocks, "the fake has no room for so many");
  }
  if (batch.empty() || batch.size() > info_.batch_tokens) {
    return Error(Errc::invalid_argument, "batch size", static_cast<uint32_t>(batch.size()));
  }
  {
    std::unique_lock lock(mutex_);
    pass_waits_ = held_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_; });
    pass_waits_ = false;
  }
  if (const uint32_t us = pass_us; us != 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(us));
  }
  sequences_.spend_pass();
  const bool fails = failing_passes != 0;
  if (fails) --failing_passes;
  logits_.assign(batch.size(), {});
  // Sequences are extended one by one, so we check the room for all of them first.
  std::vector<Token> words;
  for (size_t i = 0; i < batch.size();) {
    size_t end = i;
    words.clear();
    const uint32_t held = sequences_.held(batch[i].sequence).end;
    while (end < batch.size() && batch[end].sequence == batch[i].sequence) {
      if (batch[end].token >= kVocabulary) return Error(Errc::invalid_argument, "no such token");
      if (batch[end].position != held + (end - i)) {
        return Error(Errc::invalid_argument, "not at the end of its sequence", batch[end].position);
      }
      words.push_back(batch[end++].token);
      if (batch[end - 1].logits) break;
    }
    if (fails && i != 0) break;
    STEMMA_TRY_VOID(sequences_.compute(batch[i].sequence, words));
    if (batch[end - 1].logits) {
      fill_logits(sequences_.last_value(batch[i].sequence), logits_[end - 1]);
    }
    i = end;
  }
  if (fails) return Error(Errc::wrong_state, "the pass was made to fail");
  return {};
}

std::span<const float> FakeModel::logits(uint32_t index) {
  return index < logits_.size() ? std::span<const float>(logits_[index]) : std::span<const float>();
}

std::vector<Token> FakeModel::greedy(std::span<const Token> prompt, uint32_t count) const {
  FakeSequences::Options alone = options_;
  alone.sequences = 1;
  FakeSequences sequence(alone);
  std::vector<Token> said;
  std::vector<float> logits;
  if (!sequence.compute(SequenceId{0}, prompt)) return said;
  while (said.size() < count) {
    fill_logits(sequence.last_value(SequenceId{0}), logits);
    const auto token = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
    if (token == kEnd) break;
    said.push_back(token);
    if (!sequence.compute(SequenceId{0}, {&said.back(), 1})) break;
  }
  return said;
}

std::string FakeModel::text(std::span<const Token> tokens) const {
  std::string text;
  for (const Token token : tokens) append_text(token, false, text);
  return text;
}

// `space`: puts a space before everything but special tokens.
std::vector<Token> FakeModel::tokens_of(std::string_view text, bool parse_special,
                                        bool space) const {
  std::vector<Token> tokens;
  for (size_t i = 0; i < text.size();) {
    bool special = false;
    for (uint32_t s = 0; (parse_special || longest_word) && s < std::size(kSpecials); ++s) {
      if (!text.substr(i).starts_with(kSpecials[s])) continue;
      tokens.push_back(kBos + s);
      i += kSpecials[s].size();
      special = true;
      break;
    }
    if (!special) {
      if (space) tokens.push_back(' ');
      tokens.push_back(static_cast<uint8_t>(text[i++]));
    }
    space = special && puts_spaces;
  }
  return tokens;
}

FakeModel::TextHold::TextHold(FakeModel& model, size_t bytes) : model_(model) {
  const std::lock_guard lock(model_.mutex_);
  model_.held_bytes_ = bytes;
}

bool FakeModel::TextHold::wait(uint32_t texts) {
  std::unique_lock lock(model_.mutex_);
  return model_.changed_.wait_for(lock, std::chrono::minutes(2),
                                  [&] { return model_.waiting_texts_ >= texts; });
}

void FakeModel::TextHold::let_go() {
  const std::lock_guard lock(model_.mutex_);
  model_.held_bytes_ = SIZE_MAX;
  model_.changed_.notify_all();
}

void FakeModel::wait_with(std::string_view text) const {
  ++texts;
  std::unique_lock lock(mutex_);
  if (text.size() < held_bytes_) return;
  ++waiting_texts_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return text.size() < held_bytes_; });
  --waiting_texts_;
}

Result<std::vector<Token>> FakeModel::tokenize(std::string_view text, bool add_special,
                                               bool parse_special) const {
  wait_with(text);
  std::vector<Token> tokens = tokens_of(text, parse_special, puts_spaces);
  if (add_special) tokens.insert(tokens.begin(), kBos);
  return tokens;
}

Result<std::vector<Token>> FakeModel::tokenize_rest(std::string_view text,
                                                    bool parse_special) const {
  return tokens_of(text, parse_special, false);
}

void FakeModel::append_text(Token token, bool special, std::string& text) const {
  if (token < kBos) {
    text += static_cast<char>(token);
  } else if (special && token < kVocabulary) {
    text += kSpecials[token - kBos];
  }
}

Result<std::vector<float>> FakeModel::embed(std::span<const Token> tokens) {
  if (info_.embedding_width == 0) return LanguageModel::embed(tokens);
  if (tokens.empty()) return Error(Errc::invalid_argument, "a text without tokens");
  std::vector<float> vector(info_.embedding_width);
  for (const Token token : tokens) vector[token % vector.size()] += 1.0F;
  float squares = 0.0F;
  for (const float each : vector) squares += each * each;
  for (float& each : vector) each /= std::sqrt(squares);
  return vector;
}

Result<std::string> FakeModel::apply_own_template(std::string_view,
                                                  std::span<const engine::ChatMessage> messages,
                                                  bool add_generation_prompt) const {
  if (!knows_templates) return Error(Errc::unsupported, "the fake has no templates");
  std::string text;
  for (const engine::ChatMessage& message : messages) {
    const size_t begin = std::min(message.content.find_first_not_of(' '), message.content.size());
    const size_t end = message.content.find_last_not_of(' ') + 1;
    text += message.role + ": " + message.content.substr(begin, end - std::min(begin, end)) +
            "<|im_end|>";
  }
  return add_generation_prompt ? text + "assistant:" : text;
}

}  // namespace stemma::test
