// Probe: finds out how a model writes thinking and calls, from its chat template alone.
//
// The template is rendered over small conversations: with and without thinking, with and without
// calls, with two calls, with results. The differences between the texts show the markers and the
// places of names and arguments. It is also a fact about a template if it refuses a conversation or
// loses a call. A format counts only if our own parser reads the rendered calls back with it.
//
// Templates that write calls in an unusual way, or write none although their models do, are
// recognized by features of their text (families.h). If neither way finds a shape, it is `none`:
// the server may then describe tools in its own system prompt, or refuse them.
//
// Threading:  pure functions.
// Cost:       about 30 renderings of a few messages: about 4 ms. Templates are not trusted: each
//             rendering has small limits.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dialect/format.h"
#include "jinja/template.h"

namespace stemma::dialect {

struct ProbeOptions {
  std::string bos_token = "<s>";
  std::string eos_token = "</s>";
  jinja::Limits limits = {
      .steps = 1'000'000, .work_bytes = uint64_t{32} << 20U, .output_bytes = uint64_t{1} << 20U};
};

// `source` is the template's text, of which `chat` was parsed.
Format probe(const jinja::Template& chat, std::string_view source,
             const ProbeOptions& options = {});

}  // namespace stemma::dialect
