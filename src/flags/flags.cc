#include "flags/flags.h"

#include <algorithm>

namespace stemma::flags {

void Flags::on(std::string_view name, bool& to) { flags_.push_back({name, &to, {}}); }

void Flags::take(std::string_view name, Take take) {
  flags_.push_back({name, nullptr, std::move(take)});
}

void Flags::text(std::string_view name, std::string& to) {
  take(name, [name, &to](std::string_view value) {
    to = value;
    return value.empty() ? std::string(name) + " needs a value" : std::string();
  });
}

std::string Flags::read(std::span<const std::string_view> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--help" || word == "-h") {
      help_ = true;
      return {};
    }
    std::string wrong;
    if (word_ && (word == "-" || !word.starts_with('-'))) {
      wrong = word_(word);
    } else {
      const std::string_view name = word.substr(0, word.find('='));
      const auto flag = std::ranges::find(flags_, name, &Flag::name);
      const bool joined = name.size() < word.size();
      if (flag == flags_.end() || (flag->on != nullptr && joined)) {
        return "unknown argument '" + std::string(word) + "'";
      }
      if (flag->on != nullptr) {
        *flag->on = true;
      } else if (joined) {
        wrong = flag->take(word.substr(name.size() + 1));
      } else if (i + 1 < words.size()) {
        wrong = flag->take(words[++i]);
      } else {
        return std::string(name) + " needs a value";
      }
    }
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string Flags::any_of(std::span<const std::string_view> names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i != 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

std::string Flags::needs_whole(std::string_view name, uint64_t least, uint64_t most,
                               uint64_t limit) {
  std::string text = std::string(name) + " needs a whole number";
  if (most != limit) {
    text += " from " + std::to_string(least) + " to " + std::to_string(most);
  } else if (least != 0) {
    text += ", at least " + std::to_string(least);
  }
  return text;
}

}  // namespace stemma::flags
