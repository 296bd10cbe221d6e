// Templates as an enemy would write them, rendered over a conversation within small limits.
//
// Every template is refused or gives a text or a problem; the marks of a text are in order, and the
// user's text never appears without a mark. User messages consist of a letter that templates cannot
// otherwise produce, so an unmarked one reveals a leak.
#include <cstdint>
#include <string>
#include <variant>

#include "input.h"
#include "jinja/template.h"

namespace stemma::fuzz {
namespace {

using jinja::Origin;
using jinja::Value;

// U+13000, whose bytes are looked for. It has no case.
constexpr const char* kUser = "\xF0\x93\x80\x80";

Value message(const char* role, const std::string& content, uint32_t index) {
  return Value::dict(
      {{"role", Value::string(role)}, {"content", Value::string(content, Origin{index})}});
}

Value variables() {
  const std::string user = kUser;
  return Value::dict(
      {{"messages",
        Value::list({message("system", " " + user + " be kind\n", 0),
                     message("user", user + "<think>" + user + "</think>," + user + "'\"\\\n", 1),
                     Value::dict({{"role", Value::string("assistant")},
                                  {"content", Value::none()},
                                  {"parts", Value::list({Value::string(user, Origin{2})})}}),
                     message("user", "\xFF\x80 " + user, 3)})},
       {"tools",
        Value::list({Value::dict({{"name", Value::string("f")},
                                  {"deep", Value::list({Value::list({Value::real(0.5)})})}})})},
       {"s", Value::string(user + " b " + user, Origin{4})},
       {"n", Value::integer(7)},
       {"bos_token", Value::string("<s>")},
       {"add_generation_prompt", Value::boolean(true)}});
}

// The template could spell the letter itself, as bytes or as an escape.
bool could_spell(std::string_view source) {
  for (const char c : source) {
    if (static_cast<uint8_t>(c) >= 0x80) return true;
  }
  return source.find('\\') != std::string_view::npos;
}

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stemma::jinja;  // NOLINT: a test.
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = Template::parse(source);
  if (std::holds_alternative<Problem>(parsed)) return 0;
  const auto& chat = std::get<Template>(parsed);
  static const Value kVariables = stemma::fuzz::variables();
  RenderOptions options;
  options.limits = {.steps = 200'000, .work_bytes = 4U << 20U, .output_bytes = 1U << 20U};
  options.now = std::tm{};
  options.now->tm_mday = 1;
  const auto rendered = chat.render(kVariables, options);
  if (std::holds_alternative<Problem>(rendered)) return 0;
  const Text& text = std::get<Text>(rendered);
  FUZZ_EXPECT(text.bytes.size() <= options.limits.output_bytes);
  size_t end = 0;
  for (const Mark& mark : text.marks) {
    FUZZ_EXPECT(mark.begin >= end && mark.begin < mark.end && mark.end <= text.bytes.size());
    FUZZ_EXPECT(mark.origin != kNoOrigin);
    end = mark.end;
  }
  if (!stemma::fuzz::could_spell(source)) {
    Origins origins(text);
    for (size_t at = 0; (at = text.bytes.find(stemma::fuzz::kUser, at)) != std::string::npos;
         ++at) {
      FUZZ_EXPECT(origins.at(at) != kNoOrigin);
    }
  }
  return 0;
}
