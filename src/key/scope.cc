#include "stemma/scope.h"

#include <bit>
#include <cmath>
#include <string_view>

#include "key/little_endian.h"
#include "key/sha256.h"

namespace stemma {
namespace {

constexpr std::string_view kScopeTag{"stemma.scope.v1\0", 16};

// Part of the format (docs/formats/content-key.md): numbers are never reused or changed.
enum class Field : uint32_t {
  model = 1,
  adapter = 2,
  kv_types = 3,
  layout = 4,
  rope_and_window = 5,
  state_format = 6,
  tenant_salt = 7,
  caller_namespace = 8,
  adapter_name = 9,
  adapter_generation = 10,
  adapter_scale = 11,
};

constexpr uint64_t kHeaderBytes = 12;  // Field number (4), length (8).

class Encoder {
 public:
  Encoder() { raw(kScopeTag.data(), kScopeTag.size()); }

  void header(Field field, uint64_t length) {
    uint8_t bytes[kHeaderBytes];
    key::put_le(key::put_le(bytes, static_cast<uint32_t>(field)), length);
    raw(bytes, sizeof bytes);
  }
  void text(Field field, std::string_view value) {
    header(field, value.size());
    raw(value.data(), value.size());
  }
  template <class Unsigned>
  void number(Field field, Unsigned value) {
    uint8_t bytes[sizeof value];
    key::put_le(bytes, value);
    header(field, sizeof bytes);
    raw(bytes, sizeof bytes);
  }
  void adapter(const ScopeAdapter& adapter) {
    header(Field::adapter, 3 * kHeaderBytes + adapter.name.size() + 8 + 8);
    text(Field::adapter_name, adapter.name);
    number(Field::adapter_generation, adapter.generation);
    const double scale = adapter.scale == 0 ? 0.0 : adapter.scale;  // -0 scales as 0 does.
    number(Field::adapter_scale, std::bit_cast<uint64_t>(scale));
  }
  key::Digest finish() { return hash_.finish(); }

 private:
  void raw(const void* bytes, size_t size) {
    hash_.update({static_cast<const uint8_t*>(bytes), size});
  }
  key::Sha256 hash_;
};

}  // namespace

Result<Scope> Scope::make(const ScopeSpec& spec) noexcept {
  if (spec.model.empty()) {
    return Error(Errc::invalid_argument, "a scope needs the model's content identity");
  }
  for (size_t i = 0; i < spec.adapters.size(); ++i) {
    if (!std::isfinite(spec.adapters[i].scale)) {
      return Error(Errc::invalid_argument, "an adapter's scale is not a finite number",
                   static_cast<uint32_t>(i));
    }
  }
  Encoder encoder;
  encoder.text(Field::model, spec.model);
  for (const ScopeAdapter& adapter : spec.adapters) encoder.adapter(adapter);
  encoder.text(Field::kv_types, spec.kv_types);
  encoder.text(Field::layout, spec.layout);
  encoder.text(Field::rope_and_window, spec.rope_and_window);
  encoder.number(Field::state_format, spec.state_format);
  encoder.text(Field::tenant_salt, spec.tenant_salt);
  encoder.text(Field::caller_namespace, spec.caller_namespace);
  return Scope(encoder.finish());
}

}  // namespace stemma
