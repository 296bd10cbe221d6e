#include "server/api/responses/items.h"

#include <algorithm>
#include <utility>

namespace stemma::server {
namespace {

std::string at(std::string_view name, size_t index) {
  return std::string(name) + "[" + std::to_string(index) + "]";
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::ranges::find(list, text) != list.end();
}

}  // namespace

ItemReader::ItemReader(const ApiRules& rules, ResponseStore& store, Failure& failure,
                       ResponsesRequest& request)
    : rules_(rules), store_(store), failure_(failure), request_(request) {}

void ItemReader::read_stored(Fields& body, const std::string& response_id) {
  const auto turns = store_.chain(request_.chat.options.salt, response_id);
  if (turns.empty()) {
    failure_ = ApiError{.status = 404,
                        .message = "Previous response with id '" + response_id.substr(0, 64) +
                                   "' not found. This server keeps responses in memory, within a "
                                   "limit; send the whole conversation as 'input' instead.",
                        .param = "previous_response_id",
                        .code = "previous_response_not_found"};
    return;
  }
  for (const ResponseStore::Entry& turn : turns) {
    read_stored_list(body, turn->input);
    read_stored_list(body, turn->output);
  }
}

void ItemReader::read_stored_list(Fields& body, const std::string& text) {
  const auto parsed = parse_json(text, rules_.json);
  const Json* const list = std::get_if<Json>(&parsed);
  if (list == nullptr || list->array() == nullptr) return;  // Cannot fail: we wrote it.
  read_list(body, "previous_response_id", *list->array());
}

void ItemReader::read_input(Fields& body) {
  const Json* const value = body.take("input");
  if (value == nullptr) {
    // The stored conversation may be enough to continue from.
    if (request_.previous_response_id.empty()) body.fail_missing("input");
    request_.input = "[]";
  } else if (const std::string* text = value->string()) {
    read_text(*text);
  } else if (const Json::Array* items = value->array()) {
    if (items->empty() && request_.previous_response_id.empty()) {
      body.fail_value("input", "expected at least one item", "empty_array");
    }
    read_list(body, "input", *items);
    append_json(request_.input, *value);
  } else {
    body.fail_type("input", "a string or an array of items", *value);
  }
}

void ItemReader::read_text(const std::string& text) {
  in_assistant_ = false;
  Message& message = request_.chat.messages.emplace_back();
  message.role = "user";
  message.place = "input";
  message.parts.push_back({text, {}});
  request_.input = R"([{"type":"message","role":"user","content":[{"type":"input_text","text":)";
  append_json_string(request_.input, text);
  request_.input += "}]}]";
}

void ItemReader::read_list(Fields& owner, std::string_view name, const Json::Array& items) {
  for (size_t i = 0; i < items.size() && !failure_; ++i) {
    const size_t before = request_.chat.messages.size();
    const std::string path = at(name, i);
    read_item(owner, path, items[i]);
    for (size_t m = before; m < request_.chat.messages.size(); ++m) {
      request_.chat.messages[m].place = path;
    }
  }
}

void ItemReader::read_item(Fields& owner, const std::string& path, const Json& item) {
  if (item.object() == nullptr) return owner.fail_type(path, "an object", item);
  Fields fields(*item.object(), path + ".", failure_);
  const std::optional<std::string> said = fields.string("type", rules_.max_name_bytes);
  const std::string type = said.value_or("message");
  fields.take("status");
  if (type == "message") {
    read_message(fields, path);
  } else if (type == "reasoning") {
    read_reasoning(fields, path);
  } else if (type == "function_call" || type == "custom_tool_call") {
    read_call(fields, type == "custom_tool_call");
  } else if (type == "function_call_output" || type == "custom_tool_call_output") {
    read_result(fields, path);
  } else if (type == "item_reference") {
    return read_reference(fields);
  } else {
    fields.fail_unsupported("type", "items of the type '" + type.substr(0, 64) + "' are not");
  }
  fields.pass_over_rest(request_.chat.options.ignored);
}

// Parses the stored answer, unless this request has named it before.
const ItemReader::StoredItems& ItemReader::items_of(const std::string& response_id) {
  const auto [at, made] = referenced_.try_emplace(response_id);
  if (!made) return at->second;
  const auto response = store_.find(request_.chat.options.salt, response_id);
  if (response == nullptr) return at->second;
  referenced_bytes_ += response->output.size();
  auto parsed = parse_json(response->output, rules_.json);
  Json* const output = std::get_if<Json>(&parsed);
  auto* const list = output == nullptr ? nullptr : std::get_if<Json::Array>(&output->value);
  if (list == nullptr) return at->second;  // Cannot fail: we wrote it.
  for (Json& item : *list) {
    const Json* const id = item.find("id");
    if (id == nullptr || id->string() == nullptr) continue;
    std::string text;
    append_json(text, item);
    const std::string name = *id->string();
    at->second.try_emplace(name, StoredItem{std::move(item), text.size()});
  }
  return at->second;
}

void ItemReader::read_reference(Fields& fields) {
  const std::string id = fields.string("id", rules_.max_name_bytes).value_or("");
  const StoredItems& items = items_of(ResponseStore::response_of_item(id));
  const auto found = items.find(id);
  if (found != items.end()) referenced_bytes_ += found->second.bytes;
  if (++references_ > rules_.max_references) {
    return fail_references(fields, std::to_string(rules_.max_references) + " item references");
  }
  if (referenced_bytes_ > rules_.max_referenced_bytes) {
    return fail_references(fields, "item references to answers of " +
                                       std::to_string(rules_.max_referenced_bytes) + " bytes");
  }
  // An output item is never a reference.
  if (found != items.end()) return read_item(fields, fields.path(""), found->second.item);
  if (failure_) return;
  failure_ = ApiError{.status = 404,
                      .message = "Item with id '" + id.substr(0, 64) +
                                 "' not found. Items are not stored when 'store' is false, and "
                                 "this server keeps them within a limit; send the item itself.",
                      .param = fields.path("id"),
                      .code = "item_not_found"};
}

void ItemReader::fail_references(Fields& fields, const std::string& most) {
  fields.fail_value("",
                    "expected at most " + most +
                        " in one request; send the items themselves, or continue the answer with "
                        "'previous_response_id'",
                    "too_many_references");
}

Message* ItemReader::new_message(Fields& fields, std::string_view role) {
  std::vector<Message>& messages = request_.chat.messages;
  if (messages.size() >= rules_.max_messages) {
    fields.fail_value(
        "", "expected at most " + std::to_string(rules_.max_messages) + " messages in all");
    return nullptr;
  }
  Message& message = messages.emplace_back();
  message.role = role;
  in_assistant_ = false;
  return &message;
}

Message* ItemReader::assistant(Fields& fields, Block block, const std::string& item_id) {
  const std::string answer = ResponseStore::response_of_item(item_id);
  if (in_assistant_) {
    const Message& last = request_.chat.messages.back();
    const bool text = !last.parts.empty();
    const bool calls = !last.calls.empty();
    const bool fits = block == Block::thinking ? !text && !calls
                      : block == Block::text   ? !calls
                                               : true;
    if (!fits || (!answer.empty() && !answer_.empty() && answer != answer_)) in_assistant_ = false;
  }
  if (!in_assistant_) {
    if (new_message(fields, "assistant") == nullptr) return nullptr;
    in_assistant_ = true;
    answer_.clear();
  }
  if (!answer.empty()) answer_ = answer;
  return &request_.chat.messages.back();
}

void ItemReader::read_message(Fields& fields, const std::string& path) {
  const std::string id = fields.string("id", rules_.max_name_bytes).value_or("");
  const std::optional<std::string> role = fields.string("role", 64);
  if (!role) return fields.fail_missing("role");
  if (!is_one_of(*role, {"system", "developer", "user", "assistant"})) {
    return fields.fail_value("role", "expected system, developer, user or assistant, but got '" +
                                         role->substr(0, 64) + "'");
  }
  Message* const message =
      *role == "assistant" ? assistant(fields, Block::text, id) : new_message(fields, *role);
  if (message == nullptr) return;
  bool plain = true;
  read_parts(fields, "content", path, message->parts, plain);
  message->plain = message->plain && plain && message->parts.size() <= 1;
}

void ItemReader::read_parts(Fields& fields, std::string_view name, const std::string& path,
                            std::vector<ContentPart>& parts, bool& plain) {
  const Json* const value = fields.take(name);
  if (value == nullptr) return fields.fail_missing(name);
  if (const std::string* text = value->string()) {
    parts.push_back({*text, {}});
  } else if (const Json::Array* list = value->array()) {
    plain = false;
    for (size_t i = 0; i < list->size() && !failure_; ++i) {
      read_part(fields, at(name, i), path + "." + at(name, i), (*list)[i], parts);
    }
  } else {
    fields.fail_type(name, "a string or an array of parts", *value);
  }
}

void ItemReader::read_part(Fields& owner, const std::string& name, const std::string& path,
                           const Json& value, std::vector<ContentPart>& parts) {
  if (value.object() == nullptr) return owner.fail_type(name, "an object", value);
  Fields fields(*value.object(), path + ".", failure_);
  const std::string type = fields.string("type", rules_.max_name_bytes).value_or("");
  if (is_one_of(type, {"input_text", "output_text", "text", "summary_text", "reasoning_text"})) {
    const auto text = fields.string("text", kAnyLength);
    if (!text) fields.fail_missing("text");
    parts.push_back({text.value_or(""), {}});
  } else if (type == "refusal") {
    parts.push_back({fields.string("refusal", kAnyLength).value_or(""), {}});
  } else if (type.empty()) {
    fields.fail_missing("type");
  } else {
    fields.fail_unsupported("type",
                            "parts of the type '" + type.substr(0, 64) + "' are not; texts are");
  }
  // Our own answers contain these.
  for (const std::string_view known : {"annotations", "logprobs"}) fields.take(known);
  fields.pass_over_rest(request_.chat.options.ignored);
}

void ItemReader::read_reasoning(Fields& fields, const std::string& path) {
  const std::string id = fields.string("id", rules_.max_name_bytes).value_or("");
  std::vector<ContentPart> content;
  std::vector<ContentPart> summary;
  bool plain = false;
  const Json* const said = fields.take("content");
  if (said != nullptr) read_parts(fields, "content", path, content, plain);
  if (fields.take("summary") != nullptr) read_parts(fields, "summary", path, summary, plain);
  const std::string encrypted = fields.string("encrypted_content", kAnyLength).value_or("");
  Message* const message = assistant(fields, Block::thinking, id);
  if (message == nullptr) return;
  for (const ContentPart& part : content.empty() ? summary : content) {
    message->reasoning += part.text;
  }
  // Our value is a transcript's id; another server's means nothing to us.
  if (encrypted.size() <= rules_.max_name_bytes) message->transcript_id = encrypted;
}

void ItemReader::read_call(Fields& fields, bool custom) {
  const std::string id = fields.string("id", rules_.max_name_bytes).value_or("");
  const auto call_id = fields.string("call_id", rules_.max_name_bytes);
  const auto name = fields.string("name", rules_.max_name_bytes);
  const auto name_space = fields.string("namespace", rules_.max_name_bytes);
  const std::string_view input = custom ? "input" : "arguments";
  const auto arguments = fields.string(input, kAnyLength);
  if (!call_id || call_id->empty()) return fields.fail_missing("call_id");
  if (!name || name->empty()) return fields.fail_missing("name");
  if (!arguments) return fields.fail_missing(input);
  if (open_calls_.contains(*call_id)) {
    return fields.fail_value("call_id", "another call has it and has no output yet");
  }
  Message* const message = assistant(fields, Block::call, id);
  if (message == nullptr) return;
  ToolCall& call = message->calls.emplace_back();
  call.id = *call_id;
  call.name = *name;
  call.arguments = *arguments;
  call.custom = custom;
  if (name_space) {
    for (const NamespacedTool& tool : request_.namespaced) {
      if (tool.name_space == *name_space && tool.name == *name) call.name = tool.offered;
    }
  }
  open_calls_.insert(*call_id);
}

void ItemReader::read_result(Fields& fields, const std::string& path) {
  fields.take("id");
  const auto call_id = fields.string("call_id", rules_.max_name_bytes);
  if (!call_id || call_id->empty()) return fields.fail_missing("call_id");
  if (open_calls_.erase(*call_id) == 0) {
    return fields.fail_value("call_id", "no tool call before it has this id and waits for output");
  }
  Message* const message = new_message(fields, "tool");
  if (message == nullptr) return;
  message->call_id = *call_id;
  read_parts(fields, "output", path, message->parts, message->plain);
}

}  // namespace stemma::server
