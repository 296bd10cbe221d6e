#include "dialect/probe.h"

#include <gtest/gtest.h>

#include "dialect/probe_calls.h"
#include "support/answers.h"

namespace stemma::dialect {
namespace {

Format probed(const std::string& source) {
  auto parsed = jinja::Template::parse(source);
  EXPECT_TRUE(std::holds_alternative<jinja::Template>(parsed)) << source;
  return probe(std::get<jinja::Template>(parsed), source);
}

// Returns a template that writes answers with `answer`.
std::string chat(const std::string& answer) {
  return "{% for m in messages %}{% if m.role == 'assistant' %}<|a|>" + answer +
         "<|e|>{% else %}<|{{ m.role }}|>{{ m.content }}<|e|>{% endif %}{% endfor %}"
         "{% if add_generation_prompt %}<|a|>{% endif %}";
}

TEST(Probe, ATagAroundJsonIsFound) {
  const Format format = probed(
      chat("{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n{% endif "
           "%}{{ m.content }}"
           "{% for c in m.tool_calls %}\n<call>{\"fn\": \"{{ c.function.name }}\", \"args\": "
           "{{ c.function.arguments|tojson }}}</call>{% endfor %}"));
  EXPECT_EQ(format.source, "difference");
  EXPECT_EQ(format.calls.shape, CallShape::json);
  EXPECT_EQ(format.calls.call_open, "<call>");
  EXPECT_EQ(format.calls.call_close, "</call>");
  EXPECT_EQ(format.calls.name_key, "fn");
  EXPECT_EQ(format.calls.arguments_key, "args");
  EXPECT_TRUE(format.calls.parallel);
  EXPECT_EQ(format.thinking.opener, "<think>");
  EXPECT_EQ(format.thinking.closer, "</think>");
  EXPECT_EQ(format.thinking.field, "reasoning_content");
  EXPECT_TRUE(format.thinking.kept_in_history);
  EXPECT_EQ(format.turn_end, "<|e|>");
  EXPECT_TRUE(format.history.keeps_content);
  EXPECT_EQ(format.history.results, ResultsAs::tool_messages);
}

TEST(Probe, ANameAndJsonInASectionAreFound) {
  const Format format = probed(chat(
      "{{ m.content }}{% if m.tool_calls %}<|calls|>{% for c in m.tool_calls %}<|c|>{{ c.id }}<|n|>"
      "{{ c.function.name }}#{{ loop.index0 }}<|j|>{{ c.function.arguments }}<|/c|>{% endfor "
      "%}<|/calls|>"
      "{% endif %}"));
  EXPECT_EQ(format.calls.shape, CallShape::named_json);
  EXPECT_EQ(format.history.arguments, ArgumentsAs::text);
  EXPECT_EQ(format.calls.section_open, "<|calls|>");
  EXPECT_EQ(format.calls.section_close, "<|/calls|>");
  EXPECT_EQ(format.calls.call_open, "<|c|>");
  const std::vector<Piece> header = {{PieceKind::id, ""},     {PieceKind::text, "<|n|>"},
                                     {PieceKind::name, ""},   {PieceKind::text, "#"},
                                     {PieceKind::number, ""}, {PieceKind::text, "<|j|>"}};
  EXPECT_EQ(format.calls.header, header);
}

TEST(Probe, TaggedArgumentsAndTheirTypesAreFound) {
  const Format format = probed(chat(
      "{{ m.content }}{% for c in m.tool_calls %}<f n=\"{{ c.function.name }}\">{% for k, v in "
      "c.function.arguments.items() %}\n<p k=\"{{ k }}\" s=\"{{ 'true' if v is string else 'false' "
      "}}\">\n"
      "{{ v if v is string else v|tojson }}\n</p>{% endfor %}</f>{% endfor %}"));
  EXPECT_EQ(format.calls.shape, CallShape::tagged);
  EXPECT_EQ(format.calls.call_open, "<f n=\"");
  EXPECT_EQ(format.calls.call_close, "</f>");
  const std::vector<Piece> argument = {{PieceKind::text, "<p k=\""},
                                       {PieceKind::key, ""},
                                       {PieceKind::text, "\" s=\""},
                                       {PieceKind::type, ""},
                                       {PieceKind::text, "\">"}};
  EXPECT_EQ(format.calls.argument, argument);
  EXPECT_EQ(format.calls.value_close, "</p>");
  EXPECT_TRUE(format.calls.value_on_lines);
}

TEST(Probe, ARefusalIsAFact) {
  const Format format = probed(
      "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
      "{% if m.tool_calls and m.tool_calls|length > 1 %}{{ raise_exception('one at a time') }}{% "
      "endif %}"
      "<|{{ m.role }}|>{% if m.tool_calls %}{\"name\": \"{{ m.tool_calls[0].function.name }}\", "
      "\"parameters\": "
      "{{ m.tool_calls[0].function.arguments|tojson }}}{% else %}{{ m.content }}{% endif %}<|e|>{% "
      "endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}");
  EXPECT_EQ(format.calls.shape, CallShape::json);
  EXPECT_EQ(format.calls.call_open, "");
  EXPECT_FALSE(format.calls.parallel);
  EXPECT_FALSE(format.history.keeps_content);
  EXPECT_EQ(format.history.results, ResultsAs::user_text);
}

TEST(Probe, ATemplateWithoutCallsHasNone) {
  const Format format = probed(chat("{{ m.content }}"));
  EXPECT_EQ(format.source, "none");
  EXPECT_FALSE(supports_tools(format));
  EXPECT_FALSE(format.lists_tools);
  EXPECT_EQ(format.thinking, Thinking{});
}

TEST(Probe, TemplatesThatFailAlwaysHaveNone) {
  for (const char* source : {"{{ raise_exception('never') }}", "{{ nothing.at.all }}", "",
                             "{% for x in range(99999) %}{% for y in "
                             "range(99999) %}{{ x }}{% endfor %}{% endfor %}",
                             "{{ messages }}", "{{ tools|tojson }}"}) {
    EXPECT_FALSE(supports_tools(probed(source))) << source;
  }
}

TEST(Probe, MarkersAreTheFormatsOwn) {
  const Format format =
      probed(chat("{{ m.content }}{% for c in m.tool_calls %}<call>{{ "
                  "c.function|tojson }}</call>{% endfor %}"));
  EXPECT_EQ(markers(format), (std::vector<std::string>{"<call>", "</call>"}));
}

TEST(ProbeCalls, CommonTextsEndWhereMarkersDo) {
  EXPECT_EQ(common_front("</a><|b|>x", "</a><|c|>y"), "</a>");
  EXPECT_EQ(common_front("\n", "\n</x>"), "");
  EXPECT_EQ(common_back("<|s_begin|><|c|>f.", "<|c_end|><|c|>f."), "<|c|>f.");
  EXPECT_EQ(common_back("<all>\n<f=", "</f>\n<f="), "\n<f=");
}

}  // namespace
}  // namespace stemma::dialect
