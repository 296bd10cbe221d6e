#include "dialect/families.h"

#include <array>

namespace stemma::dialect {

namespace {

struct Family {
  std::string_view name;
  FamilyTurn turn;
  // A template has all of these; every template contains the empty ones.
  std::array<std::string_view, 3> features;
  void (*apply)(Format& format);
};

constexpr FamilyTurn kBefore = FamilyTurn::before_difference;
constexpr FamilyTurn kAfter = FamilyTurn::after_difference;

Piece text_piece(std::string_view bytes) { return {PieceKind::text, std::string(bytes)}; }
const Piece kNamePiece{PieceKind::name, {}};
const Piece kKeyPiece{PieceKind::key, {}};
const Piece kNumberPiece{PieceKind::number, {}};

void json_members(Calls& calls) {
  calls.shape = CallShape::json;
  calls.name_key = "name";
  calls.arguments_key = "arguments";
}

// gpt-oss: <|channel|>analysis<|message|>...<|end|><|start|>assistant to=functions.f<|channel|>commentary ...
void harmony(Format& format) {
  format.channels = {.opener = "<|start|>assistant",
                     .header_close = "<|message|>",
                     .closers = {"<|end|>", "<|return|>", "<|call|>"},
                     .call_mark = "to=functions.",
                     .calls_in_header = true,
                     .thinking_headers = {"<|channel|>analysis"},
                     .content_headers = {}};
  format.call_turn_ends = {"<|call|>"};
}

// Functionary 3.2: >>>all\n..., >>>f\n{...}
void functionary(Format& format) {
  format.channels = {.opener = ">>>",
                     .header_close = "\n",
                     .closers = {},
                     .call_mark = "",
                     .calls_in_header = true,
                     .thinking_headers = {},
                     .content_headers = {"all"}};
  format.calls.parallel = true;
}

// Muse: messages to "self" are thinking; messages to tools have tagged calls in them.
void muse(Format& format) {
  format.channels = {.opener = "<|start|>assistant",
                     .header_close = "<|message|>",
                     .closers = {"<|eom|>", "<|eot|>"},
                     .call_mark = "",
                     .calls_in_header = false,
                     .thinking_headers = {"to=self"},
                     .content_headers = {}};
  Calls& calls = format.calls;
  calls.shape = CallShape::tagged;
  calls.parallel = true;
  calls.section_open = "<atem:function_calls>";
  calls.section_close = "</atem:function_calls>";
  calls.call_open = "<atem:invoke name=\"";
  calls.call_close = "</atem:invoke>";
  calls.header = {kNamePiece, text_piece("\">")};
  calls.argument = {text_piece("<atem:parameter name=\""), kKeyPiece, text_piece("\">")};
  calls.value_close = "</atem:parameter>";
}

// MiniMax M3: every tag has a mark before it, and objects are nested tags.
void minimax_m3(Format& format) {
  Calls& calls = format.calls;
  calls.shape = CallShape::tagged;
  calls.parallel = true;
  calls.section_open = "]<]minimax[>[<tool_call>";
  calls.section_close = "]<]minimax[>[</tool_call>";
  calls.call_open = "]<]minimax[>[<invoke name=\"";
  calls.call_close = "]<]minimax[>[</invoke>";
  calls.header = {kNamePiece, text_piece("\">")};
  calls.argument = {text_piece("]<]minimax[>[<"), kKeyPiece, text_piece(">")};
  calls.value_close = "]<]minimax[>[</";
  calls.closer_names_key = true;
  calls.nested_tags = true;
}

// LFM2: <|tool_call_start|>[f(a=1)]<|tool_call_end|>; the template expects calls in the content.
void lfm2(Format& format) {
  Calls& calls = format.calls;
  calls.shape = CallShape::python;
  calls.parallel = true;
  calls.list = true;
  calls.section_open = "<|tool_call_start|>";
  calls.section_close = "<|tool_call_end|>";
  calls.header = {kNamePiece, text_piece("(")};
}

// Kimi K2: its templates modify lists, which Hugging Face's sandbox and ours forbid.
void kimi_k2(Format& format) {
  Calls& calls = format.calls;
  calls.shape = CallShape::named_json;
  calls.parallel = true;
  calls.section_open = "<|tool_calls_section_begin|>";
  calls.section_close = "<|tool_calls_section_end|>";
  calls.call_open = "<|tool_call_begin|>functions.";
  calls.call_close = "<|tool_call_end|>";
  calls.header = {kNamePiece, text_piece(":"), kNumberPiece,
                  text_piece("<|tool_call_argument_begin|>")};
}

// DeepSeek R1, for templates that show no calls.
void deepseek_r1(Format& format) {
  Calls& calls = format.calls;
  calls.shape = CallShape::named_json;
  calls.parallel = true;
  calls.section_open = "<｜tool▁calls▁begin｜>";
  calls.section_close = "<｜tool▁calls▁end｜>";
  calls.call_open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>";
  calls.call_close = "```<｜tool▁call▁end｜>";
  calls.header = {kNamePiece, text_piece("```json")};
}

// Granite 3: <|tool_call|>[{...}]
void granite(Format& format) {
  json_members(format.calls);
  format.calls.parallel = true;
  format.calls.list = true;
  format.calls.section_open = "<|tool_call|>";
}

// Firefunction: functools[{...}]
void functools(Format& format) {
  json_members(format.calls);
  format.calls.parallel = true;
  format.calls.list = true;
  format.calls.section_open = "functools";
}

// Templates that tell the model to write <tool_call>, and expect the history's calls in the
// content.
void hermes(Format& format) {
  json_members(format.calls);
  format.calls.parallel = true;
  format.calls.call_open = "<tool_call>";
  format.calls.call_close = "</tool_call>";
}

constexpr std::array kFamilies = {
    Family{"gpt-oss", kBefore, {"<|channel|>analysis", "<|message|>", "<|call|>"}, harmony},
    Family{"Muse", kBefore, {"atem:function_calls", "<|message|>", "to=self"}, muse},
    Family{"Functionary 3.2", kBefore, {">>>", "<|start_header_id|>", "<|eot_id|>"}, functionary},
    Family{"MiniMax M3", kBefore, {"]<]minimax[>[", "invoke", ""}, minimax_m3},
    Family{"LFM2", kAfter, {"<|tool_list_start|>", "<|tool_response_start|>", ""}, lfm2},
    Family{"LFM2", kAfter, {"List of tools: [", "<|im_start|>", ""}, lfm2},
    Family{"Kimi K2", kAfter, {"<|tool_calls_section_begin|>", "<|tool_call_begin|>", ""}, kimi_k2},
    Family{"DeepSeek R1", kAfter, {"<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", ""}, deepseek_r1},
    Family{"Granite 3", kAfter, {"<|tool_call|>", "JSON list", "<|start_of_role|>"}, granite},
    Family{"Firefunction", kAfter, {"functools[", "", ""}, functools},
    Family{"Hermes", kAfter, {"<tool_call>", "</tool_call>", "\"arguments\""}, hermes},
};

}  // namespace

bool apply_family(std::string_view source, FamilyTurn turn, Format& format) {
  for (const Family& family : kFamilies) {
    if (family.turn != turn) continue;
    bool has_all = true;
    for (const std::string_view feature : family.features) {
      has_all = has_all && source.find(feature) != std::string_view::npos;
    }
    if (!has_all) continue;
    family.apply(format);
    format.source = family.name;
    return true;
  }
  return false;
}

}  // namespace stemma::dialect
