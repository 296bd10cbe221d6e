#include "server/chat/transcript_entry.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace stemma::server {

namespace {

constexpr uint8_t kTranscript = 'T';
constexpr uint8_t kPointer = 'P';
constexpr uint8_t kVersion = 1;

class Writer {
 public:
  void byte(uint8_t value) { out.push_back(value); }
  void number(uint32_t value) {
    for (uint32_t i = 0; i < 4; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
  }
  void key(const ContentKey& key) { out.insert(out.end(), key.bytes.begin(), key.bytes.end()); }
  void text(std::string_view text) {
    number(static_cast<uint32_t>(text.size()));
    out.insert(out.end(), text.begin(), text.end());
  }

  std::vector<uint8_t> out;
};

// After the first read that does not fit, all reads return empty values and good() is false.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool good() const noexcept { return good_; }
  bool at_end() const noexcept { return bytes_.empty(); }
  uint8_t byte() { return take(1) ? last_[0] : uint8_t{0}; }
  uint32_t number() {
    uint32_t value = 0;
    if (take(4)) {
      for (uint32_t i = 0; i < 4; ++i) value |= uint32_t{last_[i]} << (8 * i);
    }
    return value;
  }
  // Reads how many items follow, of at least `least_bytes` each.
  uint32_t count(size_t least_bytes) {
    const uint32_t count = number();
    if (count > bytes_.size() / least_bytes) good_ = false;
    return good_ ? count : 0;
  }
  ContentKey key() {
    ContentKey key;
    if (take(key.bytes.size())) std::ranges::copy(last_, key.bytes.begin());
    return key;
  }
  std::string text() {
    const uint32_t size = number();
    if (!take(size)) return {};
    return {last_.begin(), last_.end()};
  }

 private:
  bool take(size_t size) {
    if (size > bytes_.size()) good_ = false;
    if (!good_) return false;
    last_ = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return true;
  }

  std::span<const uint8_t> bytes_;
  std::span<const uint8_t> last_;
  bool good_ = true;
};

StoredTranscript read_transcript(Reader& in) {
  StoredTranscript stored;
  stored.by_id = in.key();
  stored.by_digest = in.key();
  Transcript& transcript = stored.transcript;
  const uint32_t tokens = in.count(4);
  transcript.tokens.reserve(tokens);
  for (uint32_t i = 0; i < tokens; ++i) transcript.tokens.push_back(Token{in.number()});
  transcript.message.content = in.text();
  transcript.message.reasoning = in.text();
  const uint32_t calls = in.count(16);
  for (uint32_t i = 0; i < calls && in.good(); ++i) {
    dialect::ParsedCall call;
    call.name = in.text();
    call.arguments = in.text();
    call.id = in.text();
    call.complete = true;
    transcript.message.calls.push_back(std::move(call));
    transcript.call_ids.push_back(in.text());
  }
  return stored;
}

}  // namespace

std::vector<uint8_t> encode_transcript(const ContentKey& by_id, const ContentKey& by_digest,
                                       const Transcript& transcript) {
  const dialect::ParsedMessage& message = transcript.message;
  uint64_t bytes =
      256 + transcript.tokens.size() * 4 + message.content.size() + message.reasoning.size();
  for (const dialect::ParsedCall& call : message.calls) {
    bytes += 64 + call.name.size() + call.arguments.size() + call.id.size();
  }
  for (const std::string& id : transcript.call_ids) bytes += id.size();
  if (bytes > kMostTranscriptBytes) return {};
  Writer writer;
  writer.out.reserve(bytes);
  writer.byte(kTranscript);
  writer.byte(kVersion);
  writer.key(by_id);
  writer.key(by_digest);
  writer.number(static_cast<uint32_t>(transcript.tokens.size()));
  for (const Token token : transcript.tokens) writer.number(static_cast<uint32_t>(token));
  writer.text(message.content);
  writer.text(message.reasoning);
  writer.number(static_cast<uint32_t>(message.calls.size()));
  for (size_t i = 0; i < message.calls.size(); ++i) {
    writer.text(message.calls[i].name);
    writer.text(message.calls[i].arguments);
    writer.text(message.calls[i].id);
    writer.text(i < transcript.call_ids.size() ? transcript.call_ids[i] : std::string());
  }
  return std::move(writer.out);
}

std::vector<uint8_t> encode_pointer(const ContentKey& to) {
  Writer writer;
  writer.byte(kPointer);
  writer.byte(kVersion);
  writer.key(to);
  return std::move(writer.out);
}

std::optional<std::variant<StoredTranscript, TranscriptPointer>> decode_transcript(
    std::span<const uint8_t> bytes) {
  Reader in(bytes);
  const uint8_t kind = in.byte();
  if (in.byte() != kVersion) return {};
  if (kind == kPointer) {
    const TranscriptPointer pointer{in.key()};
    if (!in.good() || !in.at_end()) return {};
    return pointer;
  }
  if (kind != kTranscript) return {};
  StoredTranscript stored = read_transcript(in);
  if (!in.good() || !in.at_end()) return {};
  return stored;
}

}  // namespace stemma::server
