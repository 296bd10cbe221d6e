#include "server/rules/answer_grammar.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "constrain/gbnf.h"
#include "constrain/schema/json_schema.h"
#include "server/chat/template_talk.h"
#include "server/rules/call_grammar.h"
#include "server/rules/free_text.h"

namespace stemma::server {

using constrain::ByteSet;
using constrain::Expr;
using constrain::GrammarBuilder;
using constrain::Problem;
using constrain::RuleId;

namespace {

ApiError schema_error(const Problem& problem, const std::string& param) {
  ApiError error;
  error.message = "This cannot be enforced: " + problem.text();
  error.param = param;
  error.code = "unsupported_schema";
  return error;
}

class GrammarMaker {
  using Choice = ToolChoice::Kind;
  using Form = AnswerForm::Kind;

 public:
  GrammarMaker(const dialect::Format& format, dialect::AnswerStart start,
               const ChatRequest& request)
      : format_(format),
        start_(start),
        request_(request),
        rules_(build_, constrain::Whitespace::bounded),
        calls_(format, build_, rules_) {}

  std::variant<AnswerGrammar, ApiError> make() {
    AnswerGrammar out;
    const bool has_form = request_.form.kind != Form::free;
    const bool has_calls = !request_.tools.empty() && request_.tool_choice.kind != Choice::none;
    if (has_calls) {
      const std::vector<CallableTool> tools = callable();
      strict_ = std::ranges::any_of(tools, &CallableTool::strict);
      must_call_ = request_.tool_choice.kind != Choice::automatic;
      if (!must_call_ && !has_form && !can_begin_late()) {
        // Until a call has begun, nothing distinguishes it from text.
        if (!request_.parallel_calls) out.unenforced.emplace_back("parallel_tool_calls");
        out.unenforced.emplace_back("tools");
        return out;
      }
      if (auto problem = calls_.add(tools)) return schema_error(*problem, "tools");
      out.unenforced = calls_.unenforced();
    } else if (!has_form) {
      return out;
    }
    std::optional<Expr> form;
    if (has_form && !must_call_) {
      auto made = make_form();
      if (auto* error = std::get_if<ApiError>(&made)) return std::move(*error);
      form = std::get<Expr>(made);
      out.unenforced.insert(out.unenforced.end(), form_unenforced_.begin(), form_unenforced_.end());
    }
    const Expr whole =
        format_.channels.opener.empty() ? plain(has_calls, form) : channels(has_calls, form);
    auto finished = build_.finish(build_.rule_of(whole));
    if (auto* problem = std::get_if<Problem>(&finished)) {
      return schema_error(*problem, has_form ? form_name() : "tools");
    }
    out.grammar = std::get<constrain::GrammarPtr>(std::move(finished));
    return out;
  }

 private:
  std::string form_name() const {
    return request_.form.kind == Form::gbnf ? "grammar" : "response_format";
  }

  std::vector<CallableTool> callable() const {
    const std::vector<std::string>& only = request_.tool_choice.names;
    std::vector<CallableTool> tools;
    for (size_t t = 0; t < request_.tools.size(); ++t) {
      const ToolSpec& tool = request_.tools[t];
      if (!only.empty() && std::ranges::find(only, tool.name) == only.end()) continue;
      tools.push_back({.name = tool.name,
                       .place = "tools[" + std::to_string(t) + "]." + tool.schema_name,
                       .parameters = argument_schema(tool),
                       .strict = tool.strict});
    }
    return tools;
  }

  // Whether text and calls can be told apart, so that the constraint may begin at a call.
  bool can_begin_late() const {
    return format_.channels.calls_in_header || !calls_.opener().empty() || strict_;
  }

  bool more_calls() const {
    return request_.parallel_calls && request_.tool_choice.kind != Choice::named;
  }

  Expr blanks() { return build_.repeat(build_.byte(ByteSet::of(" \n\r\t")), 0, 8); }
  Expr free_text(std::vector<std::string> without) {
    return build_.call(text_without(build_, without));
  }

  std::variant<Expr, ApiError> make_form() {
    switch (request_.form.kind) {
      case Form::gbnf: {
        auto made = constrain::add_gbnf(build_, request_.form.grammar);
        if (auto* problem = std::get_if<Problem>(&made)) return schema_error(*problem, "grammar");
        return build_.call(std::get<RuleId>(made));
      }
      case Form::json_schema: {
        constrain::SchemaOptions options;
        options.strict = request_.form.strict;
        auto made = constrain::add_schema(build_, rules_, request_.form.schema, options);
        if (auto* problem = std::get_if<Problem>(&made)) {
          return schema_error(*problem, "response_format");
        }
        const auto& rule = std::get<constrain::SchemaRule>(made);
        for (const constrain::Unenforced& each : rule.unenforced) {
          form_unenforced_.push_back("response_format" + each.pointer);
        }
        return build_.call(rule.rule);
      }
      default: return rules_.any_object();
    }
  }

  // Puts thinking in front of `body`, if the model thinks.
  Expr behind_thinking(Expr body) {
    const dialect::Thinking& thinking = format_.thinking;
    if (thinking.closer.empty()) return body;
    const auto thought = [&] {
      return build_.sequence(
          {free_text({thinking.closer}), build_.text(thinking.closer), blanks()});
    };
    if (start_ == dialect::AnswerStart::thinking) return build_.sequence({thought(), body});
    if (thinking.opener.empty()) return body;
    return build_.sequence(
        {build_.optional(build_.sequence({blanks(), build_.text(thinking.opener), thought()})),
         body});
  }

  Expr plain(bool has_calls, std::optional<Expr> form) {
    std::vector<Expr> ways;
    if (has_calls) {
      // Markers that may precede a call and mean nothing.
      const auto opens = [&] {
        std::vector<Expr> all = {build_.nothing()};
        for (const std::string& open : format_.calls.optional_opens) {
          all.push_back(build_.sequence({build_.text(open), blanks()}));
        }
        return build_.either(all);
      };
      if (must_call_ || form) {
        ways.push_back(build_.sequence({opens(), calls_.block(true, more_calls())}));
      } else if (!calls_.opener().empty()) {
        return behind_open_thinking(text_and_calls());
      } else {
        // A text that begins with a brace is a call.
        ways.push_back(build_.sequence({opens(), calls_.block(true, more_calls())}));
        ByteSet first;
        for (uint32_t byte = 0; byte < 256; ++byte) first.add(static_cast<uint8_t>(byte));
        first.remove('{');
        first.remove('[');
        for (const char blank : {' ', '\n', '\r', '\t'}) first.remove(static_cast<uint8_t>(blank));
        ways.push_back(build_.sequence(
            {blanks(), build_.optional(build_.sequence({build_.byte(first), free_text({})}))}));
      }
    }
    if (form) {
      ways.push_back(build_.sequence({build_.text(format_.content_open), *form,
                                      build_.optional(build_.text(format_.content_close))}));
    }
    return behind_thinking(build_.either(ways));
  }

  // (text call)* text, or at most one call.
  Expr text_and_calls() {
    const std::string opener = calls_.opener();
    const Expr block = calls_.block(true, more_calls());
    const Expr text = free_text({opener});
    if (!more_calls()) {
      return build_.sequence({text, build_.optional(block)});
    }
    return build_.sequence({build_.repeat(build_.sequence({text, block}), 0, constrain::kUnbounded),
                            free_text({opener})});
  }

  // Like behind_thinking(), but the answer may end during the thinking.
  Expr behind_open_thinking(Expr body) {
    if (start_ != dialect::AnswerStart::thinking) return behind_thinking(body);
    return build_.sequence(
        {free_text({format_.thinking.closer}),
         build_.optional(build_.sequence({build_.text(format_.thinking.closer), body}))});
  }

  // A channel's message that is not a call, from after its opener to its closer, which may be
  // missing.
  Expr message(bool thinking_only) {
    const dialect::Channels& channels = format_.channels;
    std::vector<std::string> ends = channels.closers;
    ends.push_back(channels.opener);
    std::vector<Expr> headers;
    if (thinking_only) {
      for (const std::string& header : channels.thinking_headers) {
        headers.push_back(build_.text(header));
      }
    } else if (!channels.content_headers.empty()) {
      for (const std::string& header : channels.content_headers) {
        headers.push_back(build_.text(header));
      }
    } else {
      std::vector<std::string> without = {channels.header_close};
      if (!channels.call_mark.empty()) without.push_back(channels.call_mark);
      headers.push_back(free_text(std::move(without)));
    }
    std::vector<Expr> parts = {build_.either(headers), build_.text(channels.header_close),
                               free_text(ends)};
    if (!channels.closers.empty()) {
      parts.push_back(build_.optional(build_.text(channels.closers.front())));
    }
    return build_.sequence(parts);
  }

  Expr form_message(Expr form) {
    const dialect::Channels& channels = format_.channels;
    std::string header;
    if (!channels.content_headers.empty()) {
      header = channels.content_headers.front();
    } else if (!channels.thinking_headers.empty() &&
               channels.thinking_headers.front() == "<|channel|>analysis") {
      header = "<|channel|>final";
    }
    return build_.sequence({build_.text(header + channels.header_close), form});
  }

  // Messages with headers; the prompt may have opened the first one.
  Expr channels(bool has_calls, std::optional<Expr> form) {
    const dialect::Channels& channels = format_.channels;
    const bool lazy = has_calls && !must_call_ && !form;
    std::vector<Expr> last;
    if (has_calls) {
      last.push_back(channels.calls_in_header
                         ? calls_.channel_call()
                         : build_.sequence({free_text({channels.header_close}),
                                            build_.text(channels.header_close), blanks(),
                                            calls_.block(true, more_calls())}));
    }
    if (form) last.push_back(form_message(*form));
    if (lazy) last.push_back(message(false));
    Expr body = build_.either(last);
    const bool thinks = !channels.thinking_headers.empty();
    if (lazy || thinks) {
      body = build_.sequence(
          {build_.repeat(build_.sequence({message(!lazy), build_.text(channels.opener)}), 0,
                         lazy ? constrain::kUnbounded : 4),
           body});
    }
    if (start_ == dialect::AnswerStart::header) return body;
    return build_.sequence({build_.text(channels.opener), body});
  }

  const dialect::Format& format_;
  const dialect::AnswerStart start_;
  const ChatRequest& request_;
  GrammarBuilder build_;
  constrain::JsonRules rules_;
  CallGrammar calls_;
  std::vector<std::string> form_unenforced_;
  bool must_call_ = false;
  bool strict_ = false;
};

}  // namespace

std::variant<AnswerGrammar, ApiError> make_answer_grammar(const dialect::Format& format,
                                                          dialect::AnswerStart start,
                                                          const ChatRequest& request) {
  return GrammarMaker(format, start, request).make();
}

}  // namespace stemma::server
