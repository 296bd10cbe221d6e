#include "server/chat/special_texts.h"

#include <algorithm>
#include <utility>

#include "jinja/text.h"

namespace stemma::server {

SpecialTexts::SpecialTexts(const engine::LanguageModel& model) {
  for (Token token = 0; token < model.info().vocabulary; ++token) {
    if (!model.is_special(token)) continue;
    std::string text;
    model.append_text(token, true, text);
    if (text.empty()) continue;
    longest_ = std::max(longest_, text.size());
    begins_[static_cast<unsigned char>(text.front())] = true;
    if (const auto tokens = model.tokenize(text, false, false); !slip_through_ && tokens) {
      slip_through_ =
          std::ranges::any_of(*tokens, [&](Token each) { return model.is_special(each); });
    }
    texts_.push_back(std::move(text));
  }
  std::ranges::sort(texts_);
  texts_.erase(std::ranges::unique(texts_).begin(), texts_.end());
}

size_t SpecialTexts::longest_at(std::string_view text) const {
  size_t found = 0;
  auto first = texts_.begin();
  auto last = texts_.end();
  for (size_t n = 0; n < text.size() && first != last; ++n) {
    // The texts in between share their first n bytes with `text`; compare one more.
    const auto byte_of = [n](const std::string& each) {
      return n < each.size() ? int{static_cast<unsigned char>(each[n])} : -1;
    };
    const int byte = static_cast<unsigned char>(text[n]);
    first = std::ranges::lower_bound(first, last, byte, {}, byte_of);
    last = std::ranges::upper_bound(first, last, byte, {}, byte_of);
    if (first != last && first->size() == n + 1) found = n + 1;
  }
  return found;
}

std::vector<SpecialTexts::Stretch> SpecialTexts::within(std::string_view text, size_t begin,
                                                        size_t end) const {
  std::vector<Stretch> found;
  for (size_t at = begin - std::min(begin, longest_); at < end; ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    const size_t bytes = longest_at(text.substr(at));
    const Stretch stretch{std::max(at, begin), std::min(at + bytes, end)};
    if (bytes == 0 || stretch.begin >= stretch.end) continue;
    if (!found.empty() && stretch.begin <= found.back().end) {
      found.back().end = std::max(found.back().end, stretch.end);
    } else {
      found.push_back(stretch);
    }
  }
  return found;
}

std::vector<size_t> SpecialTexts::cuts(std::string_view text, size_t begin, size_t end) const {
  std::vector<size_t> found;
  for (size_t at = begin; slip_through_ && at < end; ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])] || longest_at(text.substr(at)) == 0)
      continue;
    const size_t cut = at + jinja::character_at(text, at).bytes;
    if (cut < end) found.push_back(cut);
  }
  return found;
}

}  // namespace stemma::server
