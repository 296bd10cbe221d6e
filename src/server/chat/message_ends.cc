#include "server/chat/message_ends.h"

#include <algorithm>
#include <cstdint>

#include "server/chat/part_numbers.h"

namespace stemma::server {
namespace {

size_t common_bytes(std::string_view one, std::string_view other) {
  return static_cast<size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
}

}  // namespace

void MessageEnds::learn(std::string_view role, std::string_view following) {
  const auto [tail, fresh] = tails_.try_emplace(std::string(role), following);
  if (!fresh) tail->second.resize(common_bytes(tail->second, following));
}

size_t MessageEnds::common(std::string_view role, std::string_view following) const {
  const auto tail = tails_.find(role);
  return tail == tails_.end() ? 0 : common_bytes(tail->second, following);
}

std::vector<size_t> MessageEnds::find(const jinja::Text& text,
                                      const std::vector<Message>& messages) const {
  const PartNumbers numbers(messages);
  const auto owner = [&](size_t mark) -> const Message* {
    if (mark >= text.marks.size()) return nullptr;
    const auto place = numbers.place(text.marks[mark].origin);
    return place ? &messages[place->message] : nullptr;
  };
  std::vector<size_t> ends;
  bool first = true;
  for (size_t m = 0; m < text.marks.size(); ++m) {
    const Message* const message = owner(m);
    if (message == nullptr) continue;
    // After the tools, or with nothing before it, a message begins where its contents begin.
    const bool behind_tools = m > 0 && PartNumbers::tool(text.marks[m - 1].origin).has_value();
    if (first || behind_tools) ends.push_back(text.marks[m].begin);
    first = false;
    const size_t end = text.marks[m].end;
    if (owner(m + 1) == message) {
      // A message ends between parts, but not between pieces of one part: a call has many.
      if (text.marks[m + 1].origin != text.marks[m].origin) {
        ends.push_back(text.marks[m + 1].begin);
      }
      continue;
    }
    const size_t next = m + 1 < text.marks.size() ? text.marks[m + 1].begin : text.bytes.size();
    ends.push_back(end + common(message->role, text.view().substr(end, next - end)));
  }
  std::ranges::sort(ends);
  return ends;
}

}  // namespace stemma::server
