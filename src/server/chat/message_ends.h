// Message ends: where the texts of two conversations may begin to differ.
//
// Between the words of one message and those of the next lies the template's own text, such as
//
//   Be kind.<|im_end|>\n<|im_start|>user\nHi
//           '--- the same whatever follows ---''-- the next message's header
//
// The header depends on the role of the next message, so a conversation that goes on with another
// role differs from there on. The boundary lies before the header: all conversations that begin
// like this one share everything up to it, whichever role follows. Which part is the same for every
// role is learned from the template, by rendering small conversations that differ only in the role
// that follows.
//
// Threading:  immutable after the last learn(); then thread-safe.
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
  // `following`: the template's text between a message of this role and the next message's
  // contents. Call it once for each role that can come next.
  void learn(std::string_view role, std::string_view following);

  // The boundaries of a rendered conversation, in bytes, ascending: where the first message's
  // contents begin, where the parts of a message meet, and where each message ends.
  std::vector<size_t> find(const jinja::Text& text, const std::vector<Message>& messages) const;

 private:
  // How much of `following` is the same for every next role.
  size_t common(std::string_view role, std::string_view following) const;

  std::map<std::string, std::string, std::less<>> tails_;  // By role.
};

}  // namespace stemma::server
