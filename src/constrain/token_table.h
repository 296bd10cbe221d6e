// A TokenTable has the bytes of every token of a vocabulary, as a tree of shared beginnings.
//
// It is made once for a model. Tokens without bytes (special tokens, those that end an answer) are
// in no mask; the matcher tells whether an answer may end.
//
// Threading:  immutable.
// Cost:       about 11 bytes a node of the tree and the bytes of the tokens: 10 MB for 150,000
//             tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::constrain {

class TokenTable {
 public:
  // bytes[t] are the bytes of token t.
  explicit TokenTable(std::span<const std::string> bytes);

  uint32_t size() const { return static_cast<uint32_t>(begin_.size() - 1); }
  std::string_view bytes(uint32_t token) const {
    return std::string_view(text_).substr(begin_[token], begin_[token + 1] - begin_[token]);
  }
  // Of the longest token.
  uint32_t longest_bytes() const { return longest_bytes_; }

  // A node adds one byte. Nodes are in pre-order, each before those below it, so that a walk is a
  // loop over arrays.
  struct Node {
    uint32_t after;        // The first node that is not below this one.
    uint32_t first_token;  // Into tokens(): those that end here, up to the next node's first.
    uint16_t depth;        // Index of its byte: 0 for the first byte of a token.
    uint8_t byte;
  };
  // Has one extra node: the last one only ends the tokens of the one before.
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const uint32_t> tokens() const { return sorted_; }

 private:
  std::string text_;
  std::vector<uint32_t> begin_;
  std::vector<uint32_t> sorted_;
  std::vector<Node> nodes_;
  uint32_t longest_bytes_ = 0;
};

}  // namespace stemma::constrain
