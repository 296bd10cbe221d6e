// Fields reads the members of one JSON object, each by name, and at the end refuses the names that nobody
// asked for. It is how openai/request.cc turns bodies into values.
//
// The first thing wrong is kept in the ApiError that all Fields of a body share; after it, calls do nothing
// that matters. null is the same as absent.
// Threading:  one thread at a time.
// Ownership:  the object, the error and the list of ignored names are the caller's.
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

// A field that others support and we do not, and the values (as JSON) with which it asks for nothing.
struct Unsupported {
  std::string_view name;
  std::vector<std::string_view> harmless = {};
};

class Fields {
 public:
  enum class Kind : uint8_t { any, boolean, string, object };

  // `path` stands before names in messages: "messages[2].", or nothing.
  Fields(const Json::Object& object, std::string path, Failure& failure);

  // The value, or null if the field is absent. The name is known from now on.
  const Json* take(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> string(std::string_view name, uint32_t max_bytes);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> number(std::string_view name, double low, double high);

  // Fields that change nothing: those that are there go to `ignored`.
  void ignore(std::string_view name, Kind kind, std::vector<std::string>& ignored);
  // Refuses a field unless its value asks for nothing.
  void refuse(const Unsupported& field);
  // Refuses names that were not asked for.
  void finish();

  // What is wrong, by kind; `name` as in this object. The first one of a body counts.
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

// A whole number, however it was written (3 or 3.0); nothing if it is none or beyond 64 bits.
std::optional<int64_t> whole_number(const Json& value) noexcept;

}  // namespace stemma::server
