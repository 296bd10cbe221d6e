// Claude Code puts a header into its system prompt that changes with every conversation, in some
// versions with every request:
//
//   x-anthropic-billing-header: cc_version=2.1.197.c23; cc_entrypoint=cli; cch=f3a91;
//
// The header is at the very beginning, so nothing of a prompt could be reused. `cch`, and the part
// behind the three numbers of the version (made from the first message), mean nothing to a model;
// they are replaced by as many zeros.
// Threading: a pure function. Cost: O(text up to the header).
#pragma once

#include <string>

namespace stemma::server {

// Returns whether it found such a value.
bool steady_header(std::string& text);

}  // namespace stemma::server
