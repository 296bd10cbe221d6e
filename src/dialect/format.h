// Format: how one model writes thinking and tool calls, as plain data.
//
// probe.h finds it when a model is loaded, by rendering the model's chat template. The parser of
// answers and the writer of history read it and know no model. A call is written in one of these
// shapes:
//
//   json        <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>       Hermes, Qwen, Llama, Mistral
//   named_json  <function=f>{"a": 1}</function>                                   DeepSeek, Kimi, Functionary
//   tagged      <function=f><parameter=a>1</parameter></function>                 Qwen3-Coder, GLM, MiniMax
//   literals    call:f{a:1,b:<|"|>text<|"|>}                                      Gemma 4
//   python      [f(a=1, b='text')]                                                LFM2
//
// Markers are stored without blanks at their ends. Models and templates disagree about these, so
// the parser skips blanks beside markers. Inside a marker every byte counts.
//
// Threading:  immutable values.
// Ownership:  plain strings; nothing points into the template.
// Cost:       a few hundred bytes a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::dialect {

// A part of a header or of an argument's tag, in order.
enum class PieceKind : uint8_t {
  text,    // Exactly `text`; blanks around it may differ.
  name,    // The tool's name.
  id,      // The call's id, up to the next text.
  number,  // Digits: the call's place among its neighbours.
  key,     // An argument's name.
  type,    // An argument's type: "string" or "true" means text, anything else means JSON.
};

struct Piece {
  PieceKind kind = PieceKind::text;
  std::string text;

  bool operator==(const Piece&) const = default;
};

enum class CallShape : uint8_t { none, json, named_json, tagged, literals, python };

struct Thinking {
  std::string opener;  // Empty: the model does not mark thinking.
  std::string closer;
  bool opened_by_prompt =
      false;  // The prompt ends inside thinking, with the template's default settings.
  // The message field that the template reads thinking from. Empty: it reads none.
  std::string field;
  bool kept_in_history = false;  // Thinking of answers before the last user message is rendered.

  bool operator==(const Thinking&) const = default;
};

struct Calls {
  CallShape shape = CallShape::none;
  std::string section_open;  // Around all calls of an answer; may be empty.
  std::string section_close;
  std::string call_open;  // Around each call; may be empty.
  std::string call_close;
  bool list = false;      // Calls stand in [ ] with commas between them.
  bool parallel = false;  // The template renders more than one call of a message.
  // Meaningless texts that may precede a call, like Llama's <|python_tag|>.
  std::vector<std::string> optional_opens;

  // json: the members of a call's object.
  std::string name_key;
  std::string arguments_key;
  std::string id_key;        // Empty: calls carry no id.
  bool name_is_key = false;  // {"f": {"a": 1}}: the name is the only key.

  // named_json, tagged, literals, python: what follows call_open, up to the arguments.
  std::vector<Piece> header;

  // tagged: the text before and after an argument's value.
  std::vector<Piece> argument;
  std::string value_close;
  bool value_on_lines = false;    // A newline before and after the value is not part of it.
  bool closer_names_key = false;  // The value ends with value_close, the key, and ">".
  bool nested_tags = false;       // Objects and arrays are written as tags in tags.
  bool character_data = false;    // A value may stand in <![CDATA[ ]]>.

  // literals: the quote around a string.
  std::string quote;

  bool operator==(const Calls&) const = default;
};

// Answers made of messages, each with a header that says what it is: gpt-oss, Functionary 3.2.
struct Channels {
  std::string opener;                // Before a header. Empty: the model has no channels.
  std::string header_close;          // After a header, before its text.
  std::vector<std::string> closers;  // After a text.
  std::string
      call_mark;  // In a header, right before the name of a tool. Empty: the header is the name.
  bool calls_in_header = false;  // The text of a call is its arguments.
  std::vector<std::string>
      thinking_headers;  // A header with one of these in it has thinking as its text.
  std::vector<std::string> content_headers;  // Headers of content; used where the header is a name.

  bool operator==(const Channels&) const = default;
};

// How the template needs the history.
enum class ArgumentsAs : uint8_t { object, text };
enum class EmptyContentAs : uint8_t { empty_text, none };
enum class ResultsAs : uint8_t {
  tool_messages,  // Messages of the role "tool".
  user_text,      // The template loses or refuses tool messages: use a user message.
};

struct History {
  bool renders_calls = false;         // Calls of a message reach the text.
  bool keeps_content = false;         // Content beside calls reaches the text.
  bool content_before_calls = false;  // ... and stands before them.
  bool content_hides_calls = false;   // Calls reach the text only if the message has no content.
  bool thinking_excludes_content = false;  // A message with calls may have only one of them.
  ArgumentsAs arguments = ArgumentsAs::object;
  // Objects, arrays and booleans inside arguments are passed as JSON text, because the template
  // would print them like Python.
  bool nested_as_text = false;
  EmptyContentAs empty_content = EmptyContentAs::empty_text;
  ResultsAs results = ResultsAs::user_text;
  bool results_need_name = false;
  bool ids_of_nine = false;  // The template refuses ids other than nine letters or digits.

  bool operator==(const History&) const = default;
};

struct Format {
  // Where the format is from: "difference", the name of a family in families.cc, or "none".
  std::string source = "none";
  bool lists_tools = false;  // The template writes the definitions of tools into the prompt.
  Thinking thinking;
  std::string content_open;  // Markers around content that are not part of it.
  std::string content_close;
  Calls calls;
  Channels channels;
  History history;
  std::string turn_end;  // What the template writes after an answer.
  // Texts that end a turn with calls, besides the model's own end tokens.
  std::vector<std::string> call_turn_ends;

  bool operator==(const Format&) const = default;
};

// Whether a model supports tools: it knows about them and we can read its calls.
inline bool supports_tools(const Format& format) {
  return format.calls.shape != CallShape::none || format.channels.calls_in_header;
}

// Every marker of the format once. The server looks up which of them are special tokens of the
// model: these must appear in the bytes that the parser gets.
std::vector<std::string> markers(const Format& format);

// One line a fact, for tables and logs.
std::string describe(const Format& format);
std::string_view name_of(CallShape shape) noexcept;

}  // namespace stemma::dialect
