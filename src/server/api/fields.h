// Fields reads the members of one JSON object by name, and at the end refuses all names that were
// not taken. openai/request.cc uses it to turn bodies into values.
//
// The first error is kept in the ApiError that all Fields of a body share; after it, calls do
// nothing useful. null is the same as absent.
// Threading:  one thread at a time.
// Ownership:  the caller owns the object, the error and the list of ignored names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "server/api/error.h"

namespace stemma::server {

using Failure = std::optional<ApiError>;

// For Fields::string(): a text of the conversation, limited only by the size of the body.
inline constexpr uint32_t kAnyLength = UINT32_MAX;

// A field that others support and we do not. `harmless`: the values (as JSON) that ask for nothing.
struct Unsupported {
  std::string_view name;
  std::vector<std::string_view> harmless = {};
};

class Fields {
 public:
  enum class Kind : uint8_t { any, boolean, string, object };

  // `path` is the prefix of names in error messages: "messages[2].", or nothing.
  Fields(const Json::Object& object, std::string path, Failure& failure);

  // Returns the value, or null if the field is absent. The name then counts as known.
  const Json* take(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> string(std::string_view name, uint32_t max_bytes);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> number(std::string_view name, double low, double high);

  // Accepts a field that changes nothing. If it is present, its name goes to `ignored`.
  void ignore(std::string_view name, Kind kind, std::vector<std::string>& ignored);
  // Refuses a field unless its value asks for nothing.
  void refuse(const Unsupported& field);
  // Refuses names that were not taken.
  void finish();
  // Skips names that were not taken: they go to `ignored`, with their path.
  void pass_over_rest(std::vector<std::string>& ignored);

  // Report an error, by kind; `name` as in this object. The first error of a body counts.
  void fail_type(std::string_view name, std::string_view expected, const Json& got);
  void fail_value(std::string_view name, std::string_view message,
                  std::string_view code = "invalid_value");
  void fail_range(std::string_view name, const Json& got, double low, double high);
  void fail_missing(std::string_view name);
  void fail_unsupported(std::string_view name, std::string_view message);
  bool failed() const noexcept { return failure_->has_value(); }
  std::string path(std::string_view name) const;

 private:
  const Json::Object* object_;
  std::string path_;
  Failure* failure_;
  std::vector<bool> known_;
};

// Returns a whole number, written as 3 or 3.0. Returns nothing if it is not whole or exceeds 64
// bits.
std::optional<int64_t> whole_number(const Json& value) noexcept;

}  // namespace stemma::server
