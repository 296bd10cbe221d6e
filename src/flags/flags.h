// Reads a program's command line by a table of its flags.
//
//   Flags flags;
//   flags.on("--json", out.json);
//   flags.whole("--rounds", out.rounds);
//   flags.choice("--io", out.way, {{"uring", IoWay::uring}, {"threads", IoWay::threads}});
//   flags.text("--dir", out.dir);
//   const std::string wrong = flags.read(words);
//   if (flags.help()) ...
//
// A value is the next word, or follows '=' in the same word. If a flag comes several times, the
// last one counts. A table refers to the caller's variables, which must outlive it.
// Threading: one thread at a time.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stemma::flags {

// Reads all of `text` as a number. Returns false, and leaves `out` unchanged, if it is not one.
template <class T>
bool parse_whole(std::string_view text, T& out) {
  T number{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last) return false;
  out = number;
  return true;
}

class Flags {
 public:
  // Takes a value. Returns what is wrong with it, or an empty string.
  using Take = std::function<std::string(std::string_view value)>;

  // A flag without a value.
  void on(std::string_view name, bool& to);
  void take(std::string_view name, Take take);
  void text(std::string_view name, std::string& to);  // Not empty.
  // From `least` to `most`.
  template <class T>
  void whole(std::string_view name, T& to, T least = 1, T most = std::numeric_limits<T>::max()) {
    take(name, [=, &to](std::string_view value) {
      T number{};
      if (!parse_whole(value, number) || number < least || number > most) {
        return needs_whole(name, least, most, std::numeric_limits<T>::max());
      }
      to = number;
      return std::string();
    });
  }
  template <class T>
  using Known = std::vector<std::pair<std::string_view, T>>;  // Words and their meanings.
  template <class T>
  void choice(std::string_view name, T& to, Known<T> known) {
    choose<T>(name, std::move(known), [&to](const T& meaning) { to = meaning; });
  }
  // A flag that may come several times; each choice is appended.
  template <class T>
  void choices(std::string_view name, std::vector<T>& to, Known<T> known) {
    choose<T>(name, std::move(known), [&to](const T& meaning) { to.push_back(meaning); });
  }
  // Takes the words that are not flags: "-", and those that do not begin with '-'. Without it they
  // are errors.
  void words(Take take) { word_ = std::move(take); }

  // Returns an empty string, or what is wrong. Stops without an error at --help and -h.
  std::string read(std::span<const std::string_view> words);
  bool help() const noexcept { return help_; }

 private:
  struct Flag {
    std::string_view name;
    bool* on;  // Null: it takes a value.
    Take take;
  };
  template <class T, class Set>
  void choose(std::string_view name, Known<T> known, Set set) {
    take(name, [name, set, known = std::move(known)](std::string_view value) {
      std::vector<std::string_view> names;
      for (const auto& [word, meaning] : known) {
        if (word == value) return set(meaning), std::string();
        names.push_back(word);
      }
      return std::string(name) + " is " + any_of(names);
    });
  }
  // "a, b or c"
  static std::string any_of(std::span<const std::string_view> names);
  static std::string needs_whole(std::string_view name, uint64_t least, uint64_t most,
                                 uint64_t limit);

  std::vector<Flag> flags_;
  Take word_;
  bool help_ = false;
};

}  // namespace stemma::flags
