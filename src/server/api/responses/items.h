// ItemReader: turns items of the Responses API into messages.
//
//   reasoning, message (assistant), function_call, custom_tool_call  ──▶  one assistant's message
//   message (others), function_call_output, custom_tool_call_output  ──▶  a message each
//
// An assistant's message ends where anything else begins, where thinking follows its text or calls,
// where text follows its calls, and where an item's id shows that it is part of another answer.
//
// An item_reference stands for an item of a stored answer. Each stored answer is parsed once, and
// ApiRules limits how many references a request has and how large the items behind them are.
//
// Invariant:  each result answers an earlier call that no other result has answered.
// Threading:  one thread at a time.
// Ownership:  rules, failure and request outlive it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "server/api/fields.h"
#include "server/api/responses/request.h"

namespace stemma::server {

class ItemReader {
 public:
  ItemReader(const ApiRules& rules, ResponseStore& store, Failure& failure,
             ResponsesRequest& request);

  // Reads the items of the stored turns up to this response.
  void read_stored(Fields& body, const std::string& response_id);
  // Reads the field `input`.
  void read_input(Fields& body);

 private:
  void read_text(const std::string& text);
  void read_list(Fields& owner, std::string_view name, const Json::Array& items);
  void read_stored_list(Fields& body, const std::string& text);
  void read_item(Fields& owner, const std::string& path, const Json& item);
  void read_reference(Fields& fields);
  struct StoredItem {
    Json item;
    uint64_t bytes = 0;  // As JSON.
  };
  using StoredItems = std::map<std::string, StoredItem, std::less<>>;  // By their ids.
  const StoredItems& items_of(const std::string& response_id);
  static void fail_references(Fields& fields, const std::string& most);
  void read_message(Fields& fields, const std::string& path);
  void read_reasoning(Fields& fields, const std::string& path);
  void read_call(Fields& fields, bool custom);
  void read_result(Fields& fields, const std::string& path);
  // Reads a list of text parts, or one text.
  void read_parts(Fields& fields, std::string_view name, const std::string& path,
                  std::vector<ContentPart>& parts, bool& plain);
  void read_part(Fields& owner, const std::string& name, const std::string& path, const Json& value,
                 std::vector<ContentPart>& parts);
  Message* new_message(Fields& fields, std::string_view role);
  enum class Block : uint8_t { thinking, text, call };
  // The assistant's message that an item of this kind and id belongs to.
  Message* assistant(Fields& fields, Block block, const std::string& item_id);

  const ApiRules& rules_;
  ResponseStore& store_;
  Failure& failure_;
  ResponsesRequest& request_;
  bool in_assistant_ = false;         // The last message is the assistant's and may go on.
  std::string answer_;                // The answer that its items name, if any.
  std::set<std::string> open_calls_;  // Calls without a result so far.
  std::map<std::string, StoredItems, std::less<>> referenced_;  // By the ids of their responses.
  uint32_t references_ = 0;
  uint64_t referenced_bytes_ = 0;  // Of the answers parsed for references, and of each item again.
};

}  // namespace stemma::server
