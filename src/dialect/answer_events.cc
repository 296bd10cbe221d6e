#include "dialect/answer_events.h"

#include <algorithm>

namespace stemma::dialect {

namespace {

// Bytes of the character that `lead` begins; 1 if it begins none.
size_t promised(uint8_t lead) {
  if (lead >= 0xF0 && lead < 0xF8) return 4;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  return 1;
}

// How many bytes at the end of `text` begin an incomplete character, 0 to 3.
size_t unfinished(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80) continue;
    return promised(byte) > back ? back : 0;
  }
  return 0;
}

}  // namespace

void ParsedMessage::add(const Event& event) {
  switch (event.kind) {
    case EventKind::content: content += event.text; break;
    case EventKind::reasoning: reasoning += event.text; break;
    case EventKind::call_begin: calls.push_back({event.text, {}, {}, false}); break;
    case EventKind::arguments: calls[event.call].arguments += event.text; break;
    case EventKind::call_end:
      calls[event.call].id = event.text;
      calls[event.call].complete = event.complete;
      break;
  }
}

void EventWriter::add(EventKind kind, uint32_t call, std::string_view bytes) {
  if (bytes.empty()) return;
  if (!part_.empty() && (part_kind_ != kind || part_call_ != call)) finish();
  if (part_.empty()) {
    const size_t open = unfinished(bytes);
    put(kind, call, bytes.substr(0, bytes.size() - open));
    part_ = bytes.substr(bytes.size() - open);
  } else {
    const std::string all = part_ + std::string(bytes);
    const size_t open = unfinished(all);
    put(kind, call, std::string_view(all).substr(0, all.size() - open));
    part_ = all.substr(all.size() - open);
  }
  part_kind_ = kind;
  part_call_ = call;
}

void EventWriter::put(EventKind kind, uint32_t call, std::string_view bytes) {
  if (bytes.empty()) return;
  if (!out_->empty() && out_->back().kind == kind && out_->back().call == call) {
    out_->back().text += bytes;
  } else {
    out_->push_back({kind, call, std::string(bytes), true});
  }
}

void EventWriter::begin_call(uint32_t call, std::string_view name) {
  finish();
  out_->push_back({EventKind::call_begin, call, std::string(name), true});
}

void EventWriter::end_call(uint32_t call, std::string_view id, bool complete) {
  finish();
  out_->push_back({EventKind::call_end, call, std::string(id), complete});
}

void EventWriter::finish() {
  const std::string rest = std::move(part_);
  part_.clear();
  put(part_kind_, part_call_, rest);
}

}  // namespace stemma::dialect
