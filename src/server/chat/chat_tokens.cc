// From the text of a conversation to the tokens of its prompt.
#include <algorithm>
#include <optional>
#include <utility>

#include "server/chat/chat.h"
#include "server/chat/part_numbers.h"

namespace stemma::server {

namespace {

// Counts the bytes that no tokenizer leaves out. Some drop blanks beside a special token.
uint64_t solid_bytes(std::string_view text) {
  return static_cast<uint64_t>(std::ranges::count_if(
      text, [](char c) { return c != ' ' && c != '\t' && c != '\r' && c != '\n'; }));
}

ApiError no_tokens(const Error& why) {
  ApiError error;
  error.message = std::string("the prompt cannot be tokenised: ") + why.message();
  error.param = "prompt";
  return error;
}

// The cache_control of a message's parts that lasts longest; none: no part has one.
std::optional<CacheControl> longest_control(const Message& message) {
  std::optional<CacheControl> longest;
  for (const ContentPart& part : message.parts) {
    if (!part.cache_control) continue;
    if (!longest || part.cache_control->ttl_ns > longest->ttl_ns) longest = part.cache_control;
  }
  return longest;
}

// Finds the depths of a request's parts in its tokens.
class PromptDepths {
 public:
  // For each token, the byte where it ends. For spliced tokens, the end of the place they fill.
  PromptDepths(const std::vector<size_t>& ends, const std::vector<Splice>& splices)
      : ends_(ends), splices_(splices) {}

  void find_parts(const jinja::Text& text, const ChatRequest& request, ChatPrompt& prompt) const {
    const PartNumbers numbers(request.messages);
    std::optional<uint32_t> whole_of;  // The message that whole_control is of.
    std::optional<CacheControl> whole_control;
    uint32_t pinned_to = 0;
    uint64_t pinned_ns = 0;
    const auto pin = [&](const std::optional<CacheControl>& control, uint32_t depth) {
      if (!control) return;
      pinned_to = std::max(pinned_to, depth);
      pinned_ns = std::max(pinned_ns, control->ttl_ns);
    };
    for (const jinja::Mark& mark : text.marks) {
      // Inside a splice it is unknown which token stands for which text.
      const Splice* const splice = place_of(mark.end);
      const uint32_t depth = at(splice == nullptr ? mark.end : splice->end);
      const auto tool = PartNumbers::tool(mark.origin);
      const auto place = numbers.place(mark.origin);
      if (tool && *tool < request.tools.size()) {
        pin(request.tools[*tool].cache_control, depth);
        add_part("tools[" + std::to_string(*tool) + "]", depth, prompt);
      } else if (place) {
        const Message& message = request.messages[place->message];
        pin(message.cache_control, depth);
        // If a message is rendered as a whole, its first part stands for all of them.
        const bool whole = message.role == "tool" || !message.calls.empty();
        if (!whole) {
          if (place->part < message.parts.size()) {
            pin(message.parts[place->part].cache_control, depth);
          }
        } else {
          if (whole_of != place->message) whole_control = longest_control(message);
          whole_of = place->message;
          pin(whole_control, depth);
        }
        add_part(message.place.empty() ? "messages[" + std::to_string(place->message) + "]"
                                       : message.place,
                 depth, prompt);
      }
    }
    if (pinned_to != 0) {
      prompt.pinned.push_back(
          {.begin = 0, .end = pinned_to, .priority = kPinnedPriority, .ttl_ns = pinned_ns});
    }
  }

  void find_ends(const std::vector<size_t>& bytes, ChatPrompt& prompt) const {
    for (const size_t byte : bytes) {
      if (place_of(byte) != nullptr) continue;
      const uint32_t depth = at(byte);
      if (depth == 0 || depth >= prompt.tokens.size()) continue;
      if (prompt.message_ends.empty() || prompt.message_ends.back() != depth) {
        prompt.message_ends.push_back(depth);
      }
    }
  }

 private:
  // Returns the number of tokens that end at or before a byte.
  uint32_t at(size_t byte) const {
    return static_cast<uint32_t>(std::ranges::upper_bound(ends_, byte) - ends_.begin());
  }
  // Returns the splice that has the byte inside it, not at its ends.
  const Splice* place_of(size_t byte) const {
    const auto after = std::ranges::upper_bound(splices_, byte, {}, &Splice::end);
    return after != splices_.end() && after->begin < byte ? &*after : nullptr;
  }
  static void add_part(std::string name, uint32_t depth, ChatPrompt& prompt) {
    if (!prompt.parts.empty() && prompt.parts.back().name == name) {
      prompt.parts.back().end = depth;
    } else {
      prompt.parts.push_back({std::move(name), depth});
    }
  }

  const std::vector<size_t>& ends_;
  const std::vector<Splice>& splices_;
};

}  // namespace

// Learns what the template writes before every answer: before one in the history, and before the
// one it asks for.
void Chat::learn_splicer() {
  const auto after_question = [&](bool answered, bool asks) -> std::string {
    ChatRequest request;
    for (const char* role : {"user", "assistant"}) {
      if (std::string_view(role) == "assistant" && !answered) break;
      Message message;
      message.role = role;
      message.parts.push_back({.text = "a", .cache_control = {}});
      request.messages.push_back(std::move(message));
    }
    request.add_generation_prompt = asks;
    jinja::Text text;
    std::vector<std::string> ignored;
    if (render_text(request, text, ignored) || text.marks.empty()) return {};
    const size_t begin = text.marks.front().end;
    const size_t end = text.marks.size() > 1 ? text.marks[1].begin : text.bytes.size();
    return text.bytes.substr(begin, end - begin);
  };
  const auto common = [](std::string_view one, std::string_view other) {
    return one.substr(0, std::ranges::mismatch(one, other).in1 - one.begin());
  };
  const std::string asked = after_question(false, true);
  const std::string had = after_question(true, false);
  const std::string ended = after_question(false, false);
  std::string_view header = common(asked, had);
  header.remove_prefix(common(header, ended).size());
  splicer_ = std::make_unique<const Splicer>(model_, *format_, std::string(header));
}

Chat::Chat(const engine::LanguageModel& model, const Options& options)
    : model_(model), options_(options), specials_(model) {
  std::string text;
  for (Token token = 0; token < model.info().vocabulary; ++token) {
    text.clear();
    model.append_text(token, true, text);
    longest_token_ = std::max(longest_token_, solid_bytes(text));
  }
}

std::optional<ApiError> Chat::check_length(std::string_view text, uint64_t most_tokens) const {
  // Most texts are so short that counting is not necessary.
  if (text.size() / longest_token_ < most_tokens) return {};
  const uint64_t least = (solid_bytes(text) + longest_token_ - 1) / longest_token_;
  if (least <= most_tokens) return {};
  return context_surely_exceeded(least, most_tokens);
}

std::optional<ApiError> Chat::tokenise(const jinja::Text& text, const std::vector<Splice>& splices,
                                       ChatPrompt& prompt, std::vector<size_t>& token_ends) const {
  const engine::ModelInfo& info = model_.info();
  const bool has_bos = !info.bos_text.empty() && text.view().starts_with(info.bos_text) &&
                       (text.marks.empty() || text.marks.front().begin >= info.bos_text.size());
  // A client's text that spells a special token is tokenised separately, as plain text. Adjacent
  // parts are checked together: one may begin a spelling that the next one ends.
  std::vector<SpecialTexts::Stretch> spelled;
  for (size_t m = 0; m < text.marks.size();) {
    jinja::Mark mark = text.marks[m];
    for (++m; m < text.marks.size() && text.marks[m].begin <= mark.end; ++m)
      mark.end = text.marks[m].end;
    for (const SpecialTexts::Stretch& each : specials_.within(text.view(), mark.begin, mark.end))
      spelled.push_back(each);
  }
  std::string piece;
  const auto add = [&](size_t begin, size_t end, bool parse_special) -> std::optional<ApiError> {
    const bool first = prompt.tokens.empty();
    if (begin == end && (!first || end != text.bytes.size())) return {};
    const std::string_view run = text.view().substr(begin, end - begin);
    const Result<std::vector<Token>> tokens = first ? model_.tokenize(run, !has_bos, parse_special)
                                                    : model_.tokenize_rest(run, parse_special);
    if (!tokens) return no_tokens(tokens.error());
    size_t at = begin;
    for (size_t i = 0; i < tokens->size(); ++i) {
      const Token token = (*tokens)[i];
      piece.clear();
      model_.append_text(token, true, piece);
      // Tokens that the tokenizer adds are not in the text: a BOS, a space.
      const bool added = first && i == 0 && !has_bos && info.adds_bos && piece == info.bos_text;
      const std::string_view rest = run.substr(at - begin);
      const bool spaced = piece.starts_with(' ') && !rest.starts_with(piece) &&
                          rest.starts_with(std::string_view(piece).substr(1));
      if (!added) at = std::min(end, at + piece.size() - (spaced ? 1 : 0));
      prompt.tokens.push_back(token);
      token_ends.push_back(at);
    }
    return {};
  };
  // Adds the text between the places of splices.
  const auto add_text = [&](size_t begin, size_t end) -> std::optional<ApiError> {
    for (const SpecialTexts::Stretch& each : spelled) {
      if (each.begin < begin || each.begin >= end) continue;
      if (auto error = add(begin, each.begin, true)) return error;
      begin = each.begin;
      const size_t last = std::min(each.end, end);
      for (const size_t cut : specials_.cuts(text.view(), begin, last)) {
        if (auto error = add(begin, cut, false)) return error;
        begin = cut;
      }
      if (auto error = add(begin, last, false)) return error;
      begin = last;
    }
    return add(begin, end, true);
  };
  size_t begin = 0;
  for (const Splice& splice : splices) {
    if (auto error = add_text(begin, splice.begin)) return error;
    for (const Token token : splice.tokens) {
      prompt.tokens.push_back(token);
      token_ends.push_back(splice.end);
    }
    begin = splice.end;
  }
  return add_text(begin, text.bytes.size());
}

std::optional<ApiError> Chat::fill_tokens(const ChatRequest& request, const jinja::Text& text,
                                          uint64_t most_tokens, const Recall* recall,
                                          ChatPrompt& prompt) const {
  if (auto error = check_length(text.view(), most_tokens)) return error;
  std::vector<Splice> splices;
  if (recall != nullptr) {
    const bool asks = request.add_generation_prompt && !request.continue_final_message;
    splices = splicer_->splices(text, request.messages, recall->found, prompt.reading.tools, asks,
                                recall->transcripts);
  }
  std::vector<size_t> ends;
  if (auto error = tokenise(text, splices, prompt, ends)) return error;
  const PromptDepths depths(ends, splices);
  depths.find_parts(text, request, prompt);
  depths.find_ends(message_ends_.find(text, request.messages), prompt);
  return {};
}

std::optional<ApiError> Chat::plain(const CompletionRequest& request, ChatPrompt& prompt,
                                    uint64_t most_tokens) const {
  if (!request.tokens.empty()) {
    prompt.tokens = request.tokens;
    return {};
  }
  if (auto error = check_length(request.prompt, most_tokens)) return error;
  prompt.text = request.prompt;
  const std::string& bos = model_.info().bos_text;
  const bool has_bos = !bos.empty() && prompt.text.starts_with(bos);
  // A completion's prompt is in the operator's own format, so its special tokens are meant.
  Result<std::vector<Token>> tokens = model_.tokenize(prompt.text, !has_bos, true);
  if (!tokens) return no_tokens(tokens.error());
  prompt.tokens = *std::move(tokens);
  return {};
}

}  // namespace stemma::server
