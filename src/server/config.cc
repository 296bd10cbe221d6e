#include "server/config.h"

#include <utility>

#include <toml++/toml.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <iomanip>
#include <limits>
#include <sstream>
#include <variant>

#include "server/setting_text.h"

namespace stemma::server {

namespace {

// The types of settings.
struct Text {
  std::string Config::* field;
};
struct Texts {
  std::vector<std::string> Config::* field;
};
struct Choice {
  std::string Config::* field;
  std::string_view choices;  // Words separated by spaces.
};
struct Number {
  uint64_t Config::* field;
  uint64_t least;
  uint64_t most;
  bool power_of_two = false;
};
// No number stands for its default behaviour.
struct OptionalNumber {
  std::optional<uint64_t> Config::* field;
  uint64_t least;
  uint64_t most;
};
struct Size {
  uint64_t Config::* field;
  uint64_t least = 0;
};
struct Share {
  double Config::* field;
};
struct Switch {
  bool Config::* field;
};
using Kind = std::variant<Text, Texts, Choice, Number, OptionalNumber, Size, Share, Switch>;

struct Setting {
  std::string_view name;  // --name, STEMMA_NAME, name = in a file: with - or _.
  std::string_view value;
  Kind kind;
  std::string_view help;
};
struct Group {
  std::string_view title;
  std::vector<Setting> settings;
};

constexpr uint64_t kMany = 0xFFFF'FFFFU;
constexpr uint64_t kLeastRequest = 1024;  // A smaller limit would refuse every head or body.
constexpr uint64_t kLeastQueue = uint64_t{64} << 20U;  // Twice the bytes handed on at a time.
constexpr std::string_view kWrites = "through back second-use";
constexpr std::string_view kPolicies = "adaptive lru lru_k slru arc s3_fifo sieve gdsf default";
constexpr std::string_view kTypes = "f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0";

std::vector<Setting> model_settings() {
  return {
      {"model", "FILE", Text{&Config::model}, "the GGUF file to serve (required)"},
      {"alias", "NAME", Text{&Config::alias},
       "the model's name in the API; default: the file's name"},
      {"adapter", "FILE[:SCALE]", Texts{&Config::adapters},
       "a LoRA adapter; may be given several times"},
      {"chat-template", "FILE", Text{&Config::chat_template},
       "a Jinja template to use instead of the model's own"},
      {"model-id", "TEXT", Text{&Config::model_id},
       "identifies the weights in tiers; default: the SHA-256 of the file"},
  };
}

std::vector<Setting> engine_settings() {
  return {
      {"sequences", "N", Number{&Config::sequences, 1, 255}, "how many sequences can run at once"},
      {"context", "N", Number{&Config::context, 0, kMany / 2},
       "positions shared by all sequences; 0: as many as the model was trained with"},
      {"batch", "N", Number{&Config::batch, 1, 65536}, "most tokens in one forward pass"},
      {"threads", "N", Number{&Config::threads, 0, 4096},
       "threads that compute; 0: half as many as there are cores"},
      {"gpu-layers", "N", OptionalNumber{&Config::gpu_layers, 0, 9999},
       "layers to put on a GPU; 0: none; default: all if a GPU can be used"},
      {"k-type", "TYPE", Choice{&Config::k_type, kTypes},
       "type of cached K: f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0"},
      {"v-type", "TYPE", Choice{&Config::v_type, kTypes}, "type of cached V: the same choices"},
      {"flash-attention", "on|off", Switch{&Config::flash_attention},
       "on computes long prompts faster; off rounds less"},
      {"embeddings", "WHAT", Choice{&Config::embeddings, "off on mean last"},
       "serves /v1/embeddings from a second context: off, mean, last, or on (the pooling that the "
       "file names, else mean)"},
      {"split-context", "on|off", Switch{&Config::split_context},
       "gives each sequence a context of its own: sequences then share nothing, and whole states "
       "are saved"},
  };
}

std::vector<Setting> cache_settings() {
  return {
      {"reuse", "WHAT", Choice{&Config::reuse, "everything live saved disabled"},
       "what may be reused: everything, live (only what sequences hold now), saved (only what was "
       "saved), or disabled"},
      {"saved-bytes", "SIZE", Size{&Config::saved_bytes}, "memory for saved state"},
      {"checkpoint-share", "0..1", Share{&Config::checkpoint_share},
       "the share of saved-bytes for checkpoints; hybrid models need about half"},
      {"policy", "NAME", Choice{&Config::policy, kPolicies},
       "what is evicted first when memory is full: adaptive, lru, ...; `stemma replay` compares "
       "them"},
      {"logits-bytes", "SIZE", Size{&Config::logits_bytes},
       "memory for last-token logits: a repeated prompt then needs no forward pass"},
      {"segment-tokens", "N", Number{&Config::segment_tokens, 1, 1024, true},
       "tokens in a saved segment; a power of two"},
      {"interval-tokens", "N", Number{&Config::interval_tokens, 0, kMany / 2},
       "takes a checkpoint every N tokens, besides those at the ends of messages; 0: chosen for "
       "each prompt"},
  };
}

std::vector<Setting> tier_settings() {
  return {
      {"disk", "DIRECTORY", Text{&Config::disk},
       "also saves to this directory, so that saved state survives a restart"},
      {"disk-bytes", "SIZE", Size{&Config::disk_bytes}, "the most that the directory may take"},
      {"disk-write", "WHEN", Choice{&Config::disk_write, kWrites},
       "when to write: through, back or second-use (see below)"},
      {"redis", "URL", Text{&Config::redis},
       "a Redis or Valkey to share saved state with other servers: "
       "redis://[user:password@]host[:port][,host...] or rediss://"},
      {"redis-write", "WHEN", Choice{&Config::redis_write, kWrites},
       "when to write; other servers can reuse state once it is written"},
      {"shared-dir", "DIRECTORY", Text{&Config::shared_dir},
       "a directory (NFS, Lustre, local) to share saved state with other servers"},
      {"shared-bytes", "SIZE", Size{&Config::shared_bytes},
       "the most that all servers together may store there; give each server the same value"},
      {"shared-write", "WHEN", Choice{&Config::shared_write, kWrites}, "when to write"},
      {"tier-queue-bytes", "SIZE", Size{&Config::tier_queue_bytes, kLeastQueue},
       "memory for data that waits to be written to a tier; what does not fit is dropped and "
       "counted"},
      {"tier-wait-ms", "N", Number{&Config::tier_wait_ms, 1, 60'000},
       "how long a request waits for a tier to say what it has; a slower tier is skipped for a "
       "while"},
      {"tier-words", "on|off", Switch{&Config::tier_words},
       "stores the tokens of prompts with the state, for `stemma inspect`"},
      {"scrub-bytes-per-second", "SIZE", Size{&Config::scrub_bytes_per_second},
       "while idle, checks what the disk and the shared directory hold, at this speed; 0: never"},
      {"seal-keys", "DIRECTORY", Text{&Config::seal_keys},
       "encrypts what goes to Redis and the shared directory; this directory holds one key for "
       "each tenant"},
      {"seal-disk", "on|off", Switch{&Config::seal_disk}, "with --seal-keys: encrypts --disk too"},
  };
}

std::vector<Setting> server_settings() {
  return {
      {"host", "ADDRESS", Text{&Config::host}, "the address to listen on"},
      {"port", "N", Number{&Config::port, 0, 65535}, "the port to listen on; 0: any free one"},
      {"api-key", "KEY", Text{&Config::api_key}, "clients must send this key as a bearer token"},
      {"api-key-file", "FILE", Text{&Config::api_key_file}, "a file whose first line is the key"},
      {"queue", "N", Number{&Config::queue, 1, 1'000'000},
       "how many requests may wait; further ones are answered 503"},
      {"connections", "N", Number{&Config::connections, 1, 1'000'000}, "most open connections"},
      {"body-bytes", "SIZE", Size{&Config::body_bytes, kLeastRequest}, "largest body of a request"},
      {"header-bytes", "SIZE", Size{&Config::header_bytes, kLeastRequest},
       "largest head of a request"},
      {"read-seconds", "N", Number{&Config::read_seconds, 1, 86400},
       "a request must arrive within this time"},
      {"write-seconds", "N", Number{&Config::write_seconds, 1, 86400},
       "closes the connection of a client that has read nothing for this long"},
      {"keep-alive-seconds", "N", Number{&Config::keep_alive_seconds, 0, 86400},
       "an idle stream sends a comment after this many seconds; 0: never"},
      {"drain-seconds", "N", Number{&Config::drain_seconds, 0, 86400},
       "how long running requests may take after SIGTERM"},
      {"cors-origin", "ORIGIN", Text{&Config::cors_origin},
       "web pages from this origin may call the server; *: all"},
      {"any-model", "on|off", Switch{&Config::any_model},
       "accepts requests that name another model; agents do that for small tasks"},
      {"keep-thinking", "on|off", Switch{&Config::keep_thinking},
       "keeps the thinking of older answers in prompts, where the template allows it"},
      {"vllm-metrics", "on|off", Switch{&Config::vllm_metrics},
       "also exports /metrics under vLLM's names"},
      {"llama-metrics", "on|off", Switch{&Config::llama_metrics},
       "also exports /metrics under llama-server's names"},
      {"quiet", "on|off", Switch{&Config::quiet}, "writes no log line for each request"},
  };
}

const std::vector<Group>& groups() {
  static const std::vector<Group> kGroups = {
      {"the model", model_settings()},   {"the engine", engine_settings()},
      {"the cache", cache_settings()},   {"tiers, which also keep what is saved", tier_settings()},
      {"the server", server_settings()},
  };
  return kGroups;
}

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) all += part;
  return all;
}

std::string key_of(std::string_view name) {
  std::string key(name);
  std::ranges::replace(key, '-', '_');
  return key;
}

std::string variable_of(const Setting& setting) {
  std::string name = "STEMMA_" + key_of(setting.name);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

const Setting* find(std::string_view name) {
  const std::string wanted = key_of(name);
  for (const Group& group : groups()) {
    for (const Setting& setting : group.settings) {
      if (key_of(setting.name) == wanted) return &setting;
    }
  }
  return nullptr;
}

// Returns "" or an error message about the value.
std::string set(Config& config, const Setting& setting, const std::string& text) {
  struct Visitor {
    Config& config;
    const std::string& text;

    // An empty value must not open what a setting should close: an empty host means every address,
    // an empty key means no key.
    std::string operator()(const Text& kind) const {
      if (text.empty()) return "takes a text that is not empty";
      config.*kind.field = text;
      return "";
    }
    std::string operator()(const Texts& kind) const {
      if (text.empty()) return "takes a text that is not empty";
      (config.*kind.field).push_back(text);
      return "";
    }
    std::string operator()(const Choice& kind) const {
      if (const std::string all = unless_among(kind.choices, text); !all.empty()) {
        return "takes " + all;
      }
      config.*kind.field = text;
      return "";
    }
    std::string operator()(const Number& kind) const {
      const std::optional<uint64_t> number = parse_number(text);
      if (!number || *number < kind.least || *number > kind.most ||
          (kind.power_of_two && !std::has_single_bit(*number))) {
        return std::string(kind.power_of_two ? "takes a power of two from "
                                             : "takes a number from ") +
               std::to_string(kind.least) + " to " + std::to_string(kind.most);
      }
      config.*kind.field = *number;
      return "";
    }
    std::string operator()(const OptionalNumber& kind) const {
      const std::optional<uint64_t> number = parse_number(text);
      if (!number || *number < kind.least || *number > kind.most) {
        return "takes a number from " + std::to_string(kind.least) + " to " +
               std::to_string(kind.most);
      }
      config.*kind.field = *number;
      return "";
    }
    std::string operator()(const Size& kind) const {
      const std::optional<uint64_t> size = parse_size(text);
      if (!size) return "takes a size, like 512MiB or 2GiB";
      if (*size < kind.least) return "takes a size of at least " + show_size(kind.least);
      config.*kind.field = *size;
      return "";
    }
    std::string operator()(const Share& kind) const {
      char* end = nullptr;
      const double share = std::strtod(text.c_str(), &end);
      const bool in_range = share >= 0 && share <= 1;  // NaN is not.
      if (text.empty() || *end != '\0' || !in_range) return "takes a number from 0 to 1";
      config.*kind.field = share;
      return "";
    }
    std::string operator()(const Switch& kind) const {
      const bool on = text == "on" || text == "true" || text == "1" || text == "yes";
      if (!on && text != "off" && text != "false" && text != "0" && text != "no")
        return "takes on or off";
      config.*kind.field = on;
      return "";
    }
  };
  const std::string problem = std::visit(Visitor{config, text}, setting.kind);
  return problem.empty() ? "" : problem + ", not '" + text + "'";
}

// Returns nothing for a table, a list or a date.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "on" : "off";
  if (const auto* real = node.as_floating_point()) {
    std::ostringstream out;
    out << std::setprecision(std::numeric_limits<double>::max_digits10) << real->get();
    return std::move(out).str();
  }
  return {};
}

std::string read_file(Config& config, const std::string& path, const std::string& text) {
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return path + ", line " + std::to_string(error.source().begin.line) + ": " +
           std::string(error.description());
  }
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const Setting* setting = find(name);
    if (setting == nullptr) return joined({path, ": there is no setting '", name, "'"});
    std::vector<std::optional<std::string>> values;
    const toml::array* list = node.as_array();
    if (list != nullptr && std::holds_alternative<Texts>(setting->kind)) {
      for (const toml::node& each : *list) values.push_back(text_of(each));
    } else {
      values.push_back(text_of(node));
    }
    for (const std::optional<std::string>& value : values) {
      if (!value) return joined({path, ": ", name, " takes one text, number, true or false"});
      if (const std::string problem = set(config, *setting, *value); !problem.empty()) {
        return joined({path, ": ", name, " ", problem});
      }
    }
  }
  return "";
}

// The words of a command line, in their order.
struct Flags {
  std::vector<std::pair<const Setting*, std::string>> settings;
  std::string file;  // From --config.
  bool help = false;
};

// Returns "" or what is wrong with the command line. Stops at --help.
std::string read_flags(std::span<const std::string_view> arguments, Flags& flags) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--help" || word == "-h") {
      flags.help = true;
      return "";
    }
    if (!word.starts_with("--")) {
      return joined({"what is '", word, "'? Settings begin with --"});
    }
    const size_t equals = word.find('=');
    const std::string_view name =
        word.substr(2, equals == std::string_view::npos ? word.size() : equals - 2);
    const Setting* setting = name == "config" ? nullptr : find(name);
    if (setting == nullptr && name != "config") {
      return joined({"there is no --", name, "; 'stemma serve --help' lists what there is"});
    }
    std::string value;
    if (equals != std::string_view::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      value = arguments[++i];
    } else if (setting != nullptr && std::holds_alternative<Switch>(setting->kind)) {
      value = "on";
    } else {
      return joined({"--", name, " needs a value"});
    }
    if (setting == nullptr) {
      flags.file = value;
    } else {
      flags.settings.emplace_back(setting, value);
    }
  }
  return "";
}

std::string read_variables(Config& config,
                           const std::function<const char*(const char*)>& variable) {
  for (const Group& group : groups()) {
    for (const Setting& setting : group.settings) {
      const std::string name = variable_of(setting);
      const char* value = variable(name.c_str());
      if (value == nullptr) continue;
      if (const auto* texts = std::get_if<Texts>(&setting.kind)) config.*texts->field = {};
      if (const std::string problem = set(config, setting, value); !problem.empty()) {
        return joined({name, " ", problem});
      }
    }
  }
  return "";
}

// A list that is given on the command line replaces the one from the file or the environment.
std::string apply(const Flags& flags, Config& config) {
  std::vector<const Setting*> cleared;
  for (const auto& [setting, value] : flags.settings) {
    if (const auto* texts = std::get_if<Texts>(&setting->kind);
        texts != nullptr && std::ranges::find(cleared, setting) == cleared.end()) {
      config.*texts->field = {};
      cleared.push_back(setting);
    }
    if (const std::string problem = set(config, *setting, value); !problem.empty()) {
      return joined({"--", setting->name, " ", problem});
    }
  }
  return "";
}

}  // namespace

std::optional<uint64_t> parse_size(std::string_view text) {
  size_t digits = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) != 0 || text[digits] == '.')) {
    ++digits;
  }
  double number = 0;
  const std::string written(text.substr(0, digits));
  const char* const all = written.data() + digits;
  const auto [end, error] = std::from_chars(written.data(), all, number);
  if (digits == 0 || error != std::errc() || end != all) return {};
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  static constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1.0},
                                                                   {"B", 1.0},
                                                                   {"KiB", 1024.0},
                                                                   {"K", 1024.0},
                                                                   {"MiB", 1048576.0},
                                                                   {"M", 1048576.0},
                                                                   {"GiB", 1073741824.0},
                                                                   {"G", 1073741824.0},
                                                                   {"TiB", 1099511627776.0},
                                                                   {"T", 1099511627776.0},
                                                                   {"KB", 1e3},
                                                                   {"MB", 1e6},
                                                                   {"GB", 1e9},
                                                                   {"TB", 1e12}};
  const auto* found = std::ranges::find(kUnits, unit, &std::pair<std::string_view, double>::first);
  if (found == std::end(kUnits)) return {};
  const double bytes = number * found->second;
  const bool in_range = bytes >= 0 && bytes < 9e18;  // NaN is not.
  if (!in_range) return {};
  return static_cast<uint64_t>(std::llround(bytes));
}

ConfigAnswer read_config(
    std::span<const std::string_view> arguments,
    const std::function<const char*(const char*)>& variable,
    const std::function<std::optional<std::string>(const std::string&)>& read) {
  ConfigAnswer answer;
  // Flags are applied last, but they name the file.
  Flags flags;
  if (const char* named = variable("STEMMA_CONFIG")) flags.file = named;
  answer.error = read_flags(arguments, flags);
  answer.help = flags.help;
  if (answer.help || !answer.error.empty()) return answer;
  if (!flags.file.empty()) {
    const std::optional<std::string> text = read(flags.file);
    answer.error = text ? read_file(answer.config, flags.file, *text) : "cannot read " + flags.file;
  }
  if (answer.error.empty()) answer.error = read_variables(answer.config, variable);
  if (answer.error.empty()) answer.error = apply(flags, answer.config);
  return answer;
}

std::vector<std::string> unknown_variables(std::span<const std::string> names) {
  std::vector<std::string> known = {"STEMMA_CONFIG"};
  for (const Group& group : groups()) {
    for (const Setting& setting : group.settings) known.push_back(variable_of(setting));
  }
  std::vector<std::string> sentences;
  for (const std::string& name : names) {
    if (!name.starts_with("STEMMA_") || std::ranges::find(known, name) != known.end()) continue;
    if (name.starts_with("STEMMA_TEST_")) continue;  // What the tests set has its effect elsewhere.
    const auto nearest = std::ranges::min_element(
        known, {}, [&](const std::string& each) { return edits_between(name, each); });
    sentences.push_back(
        joined({name, " is not a setting and has no effect; is ", *nearest, " meant?"}));
  }
  return sentences;
}

std::string config_help() {
  const Config usual;
  std::string out;
  for (const Group& group : groups()) {
    out += "\n";
    out += group.title;
    out += ":\n";
    for (const Setting& setting : group.settings) {
      std::string left = "  --" + std::string(setting.name) + " " + std::string(setting.value);
      std::string right(setting.help);
      struct Visitor {
        const Config& usual;
        std::string operator()(const Text& kind) const { return usual.*kind.field; }
        std::string operator()(const Texts&) const { return ""; }
        std::string operator()(const Choice& kind) const { return usual.*kind.field; }
        std::string operator()(const Number& kind) const {
          return std::to_string(usual.*kind.field);
        }
        std::string operator()(const OptionalNumber&) const { return ""; }
        std::string operator()(const Size& kind) const { return show_size(usual.*kind.field); }
        std::string operator()(const Share& kind) const {
          std::ostringstream text;
          text << usual.*kind.field;
          return std::move(text).str();
        }
        std::string operator()(const Switch& kind) const {
          return usual.*kind.field ? "on" : "off";
        }
      };
      const std::string value = std::visit(Visitor{usual}, setting.kind);
      if (!value.empty()) right += " (" + value + ")";
      append_setting(out, std::move(left), right);
    }
  }
  return out;
}

}  // namespace stemma::server
