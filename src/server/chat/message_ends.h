// Message ends: where the text of a conversation may part from that of another one.
//
// Between what one message says and what the next one says lies the template's own text, such as
//
//   Be kind.<|im_end|>\n<|im_start|>user\nHi
//           '--- the same whatever follows ---''-- the next message's header
//
// The header depends on the role of the next message, so a conversation that goes on with another role parts
// from this one there. The boundary lies before it: everything up to it is shared by all conversations that
// begin like this one, whoever speaks next. Which part is the same for every role is learned from the template,
// by rendering small conversations that differ in nothing but the role that follows.
//
// Threading:  immutable after it has learned; then thread-safe.
// Cost:       O(marks) for a conversation.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/text.h"
#include "server/api/request.h"

namespace stemma::server {

class MessageEnds {
 public:
  // `following` is what a template writes behind a message of this role, up to the next message's contents. To
  // be called with what it writes before each role that can come next.
  void learn(std::string_view role, std::string_view following);

  // The boundaries of a rendered conversation, in bytes, ascending: where the first message's contents begin,
  // where the parts of a message meet, and where each message ends.
  std::vector<size_t> find(const jinja::Text& text, const std::vector<Message>& messages) const;

 private:
  // How much of `following` is the same whatever comes next.
  size_t common(std::string_view role, std::string_view following) const;

  std::map<std::string, std::string, std::less<>> tails_;  // By role.
};

}  // namespace stemma::server
