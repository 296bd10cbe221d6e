// ProbeTalk: the conversations that a probe renders, and the words in them that it looks for.
// Threading:  one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/probe.h"
#include "dialect/values/schema_types.h"
#include "jinja/template.h"

namespace stemma::dialect {

// Words that no template contains.
inline constexpr std::string_view kAsked = "Askedsomething";
inline constexpr std::string_view kSaid = "Saidsomething";
inline constexpr std::string_view kThought = "Thoughtsomething";
inline constexpr std::string_view kResult = "Resultsomething";
inline constexpr std::string_view kFirstTool = "probe_alpha";
inline constexpr std::string_view kSecondTool = "probe_beta";
inline constexpr std::string_view kId = "callprobe";  // Nine letters: some templates want that.
inline constexpr std::string_view kFirstKey = "keyone";
inline constexpr std::string_view kFirstValue = "valuone";
inline constexpr std::string_view kSecondKey = "keytwo";
inline constexpr std::string_view kSecondValue = "valutwo";
inline constexpr std::string_view kNumberKey = "keyzip";  // Sorts last: some templates sort keys.
inline constexpr std::string_view kNumber = "31337";

inline constexpr size_t kNowhere = std::string_view::npos;
// What follows the question in a rendered conversation; nothing if it is not there.
std::string_view after_question(std::string_view text) noexcept;

enum class ContentAs : uint8_t { text, empty, none };
enum class ProbeArguments : uint8_t {
  plain,   // Two texts and a number; one text for the second call.
  nested,  // An object with a list in it.
  rough,   // A text with quotes, angle brackets and a newline.
};

// An answer in history.
struct ProbeAnswer {
  ContentAs content = ContentAs::text;
  std::string thinking_field;  // Empty: no thinking. "parts": as a part of the content.
  uint32_t calls = 0;
  ArgumentsAs arguments_as = ArgumentsAs::object;
  ProbeArguments arguments = ProbeArguments::plain;
  std::string id{kId};
};

class ProbeTalk {
 public:
  ProbeTalk(const jinja::Template& chat, const ProbeOptions& options);

  // Sets enable_thinking and the like.
  bool thinking_on = false;
  bool with_tools = true;

  // A question, up to where the answer begins.
  std::optional<std::string> prompt() const;
  // A question and its answer.
  std::optional<std::string> answered(const ProbeAnswer& answer) const;
  // ... and a second question.
  std::optional<std::string> asked_again(const ProbeAnswer& answer) const;
  // A question, an answer with calls, and their results.
  std::optional<std::string> with_results(const ProbeAnswer& answer, bool with_names) const;

  // The tools of the conversations, as a request would offer them.
  static std::vector<Tool> tools();
  static std::string arguments_json(uint32_t call, ProbeArguments kind);

 private:
  std::optional<std::string> render(std::vector<jinja::Value> messages, bool prompt) const;

  const jinja::Template& chat_;
  const ProbeOptions& options_;
};

}  // namespace stemma::dialect
