// Renders conversations with the engine's own list of templates.
//
// The list knows no marks. A second rendering, with a sign in place of each message's words, shows
// which text is the template's own.
//
// Threading: pure functions.
#pragma once

#include <optional>
#include <string>

#include "engine/language_model.h"
#include "jinja/text.h"
#include "server/api/request.h"

namespace stemma::server {

enum class EngineRendering { done, no_template, no_marks };

// Writes the text, with the marks of PartNumbers, to `text`.
EngineRendering render_by_engine_list(const engine::LanguageModel& model,
                                      const std::string& chat_template, const ChatRequest& request,
                                      jinja::Text& text);

}  // namespace stemma::server
