#include "server/config.h"

#include <utility>

#include <toml++/toml.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <iomanip>
#include <limits>
#include <numeric>
#include <sstream>
#include <variant>

namespace stemma::server {

namespace {

// How a setting is written.
struct Text {
  std::string Config::* field;
};
struct Texts {
  std::vector<std::string> Config::* field;
};
struct Choice {
  std::string Config::* field;
  std::string_view choices;  // Words with a space between them.
};
struct Number {
  uint64_t Config::* field;
  uint64_t least;
  uint64_t most;
  bool power_of_two = false;
};
// What happens where it is not set cannot be said by a number.
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
constexpr uint64_t kLeastRequest = 1024;  // Less of a head or a body would refuse every request.
constexpr uint64_t kLeastQueue = uint64_t{64} << 20U;  // Twice what is handed on at a time.
constexpr std::string_view kWrites = "through back second-use";
constexpr std::string_view kPolicies = "default lru lru_k slru arc s3_fifo sieve gdsf adaptive";
constexpr std::string_view kTypes = "f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0";

const std::vector<Group>& groups() {
  static const std::vector<Group> kGroups = {
      {"the model",
       {
           {"model", "FILE", Text{&Config::model}, "a GGUF file (required)"},
           {"alias", "NAME", Text{&Config::alias},
            "what clients call it; the file's name otherwise"},
           {"adapter", "FILE[:SCALE]", Texts{&Config::adapters}, "a LoRA adapter; may be repeated"},
           {"chat-template", "FILE", Text{&Config::chat_template},
            "a Jinja template instead of the model's"},
           {"model-id", "TEXT", Text{&Config::model_id},
            "what identifies the model's content, instead of the SHA-256 of its file"},
       }},
      {"the engine",
       {
           {"sequences", "N", Number{&Config::sequences, 1, 255},
            "sequences that can be under way at once"},
           {"context", "N", Number{&Config::context, 0, kMany / 2},
            "positions for all sequences together; 0: as many as the model was trained with"},
           {"batch", "N", Number{&Config::batch, 1, 65536}, "tokens in one forward pass at most"},
           {"threads", "N", Number{&Config::threads, 0, 4096},
            "that compute; 0: half as many as there are cores"},
           {"gpu-layers", "N", OptionalNumber{&Config::gpu_layers, 0, 9999},
            "layers on a GPU; 0: none. If it is not set: all, where a GPU can be used"},
           {"k-type", "TYPE", Choice{&Config::k_type, kTypes},
            "of K: f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0"},
           {"v-type", "TYPE", Choice{&Config::v_type, kTypes}, "of V: the same"},
           {"flash-attention", "on|off", Switch{&Config::flash_attention},
            "on: long prompts are computed faster; off rounds less"},
           {"split-context", "on|off", Switch{&Config::split_context},
            "a context of its own for each sequence: nothing is shared, whole states are saved"},
       }},
      {"the cache",
       {
           {"reuse", "WHAT", Choice{&Config::reuse, "everything live saved disabled"},
            "everything, live (what sequences hold), saved, or disabled"},
           {"saved-bytes", "SIZE", Size{&Config::saved_bytes}, "memory for what is saved"},
           {"checkpoint-share", "0..1", Share{&Config::checkpoint_share},
            "the part of it for checkpoints; hybrid models want half"},
           {"policy", "NAME", Choice{&Config::policy, kPolicies},
            "what goes first when it is full: default, lru or another; stemma replay compares "
            "them"},
           {"logits-bytes", "SIZE", Size{&Config::logits_bytes},
            "memory for logits: a prompt that comes again needs no forward pass"},
           {"segment-tokens", "N", Number{&Config::segment_tokens, 1, 1024, true},
            "tokens a saved segment has; a power of two"},
           {"interval-tokens", "N", Number{&Config::interval_tokens, 0, kMany / 2},
            "a checkpoint every so many tokens, besides where messages end; 0: chosen by the "
            "prompt"},
       }},
      {"where it is kept besides",
       {
           {"host-bytes", "SIZE", Size{&Config::saved_bytes}, "another name of saved-bytes"},
           {"disk", "DIRECTORY", Text{&Config::disk},
            "what is saved is kept there too, and is there again after a restart"},
           {"disk-bytes", "SIZE", Size{&Config::disk_bytes}, "it takes no more than that"},
           {"disk-write", "WHEN", Choice{&Config::disk_write, kWrites},
            "when: through (as it is saved), back (as it leaves memory) or second-use; see below"},
           {"redis", "URL", Text{&Config::redis},
            "redis://[user:password@]host[:port][,host...] or rediss://: shared with all who use "
            "it"},
           {"redis-write", "WHEN", Choice{&Config::redis_write, kWrites},
            "the same; other servers see it from then on"},
           {"shared-dir", "DIRECTORY", Text{&Config::shared_dir},
            "on NFS, Lustre or a local disk: shared with all who name it"},
           {"shared-bytes", "SIZE", Size{&Config::shared_bytes},
            "they take no more than that together; all should say the same"},
           {"shared-write", "WHEN", Choice{&Config::shared_write, kWrites}, "the same"},
           {"tier-queue-bytes", "SIZE", Size{&Config::tier_queue_bytes, kLeastQueue},
            "memory for what waits to be written to one of them; more is dropped, and counted"},
           {"tier-wait-ms", "N", Number{&Config::tier_wait_ms, 1, 60'000},
            "how long a request waits to hear what is there; one that is late is left alone a "
            "while"},
           {"tier-words", "on|off", Switch{&Config::tier_words},
            "prompts' tokens are kept with it, for whoever looks at it later"},
           {"seal-keys", "DIRECTORY", Text{&Config::seal_keys},
            "encrypt what goes to Redis or a shared directory; a key for each tenant lies there"},
           {"seal-disk", "on|off", Switch{&Config::seal_disk},
            "with seal-keys: what goes to --disk is encrypted, too"},
       }},
      {"the server",
       {
           {"host", "ADDRESS", Text{&Config::host}, "where it listens"},
           {"port", "N", Number{&Config::port, 0, 65535}, "0: any that is free"},
           {"api-key", "KEY", Text{&Config::api_key}, "clients must send it as a bearer token"},
           {"api-key-file", "FILE", Text{&Config::api_key_file}, "its first line is the key"},
           {"queue", "N", Number{&Config::queue, 1, 1'000'000},
            "requests that may wait; more are answered 503"},
           {"connections", "N", Number{&Config::connections, 1, 1'000'000},
            "open connections at most"},
           {"body-bytes", "SIZE", Size{&Config::body_bytes, kLeastRequest}, "of a request at most"},
           {"header-bytes", "SIZE", Size{&Config::header_bytes, kLeastRequest},
            "of a request's head at most"},
           {"read-seconds", "N", Number{&Config::read_seconds, 1, 86400},
            "a request must arrive within"},
           {"write-seconds", "N", Number{&Config::write_seconds, 1, 86400},
            "a client that reads nothing for so long is cut off"},
           {"keep-alive-seconds", "N", Number{&Config::keep_alive_seconds, 0, 86400},
            "a stream that says nothing for so long says that it is there; 0: never"},
           {"drain-seconds", "N", Number{&Config::drain_seconds, 0, 86400},
            "after SIGTERM, requests under way may take so long"},
           {"cors-origin", "ORIGIN", Text{&Config::cors_origin},
            "which pages of browsers may call it; * for all"},
           {"vllm-metrics", "on|off", Switch{&Config::vllm_metrics},
            "/metrics also under vLLM's names"},
           {"llama-metrics", "on|off", Switch{&Config::llama_metrics},
            "/metrics also under llama-server's names"},
           {"quiet", "on|off", Switch{&Config::quiet}, "no line a request"},
       }},
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

// How many letters must be put in, left out or changed to get from one to the other.
size_t edits_between(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
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

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return number;
}

// "64MiB".
std::string show_size(uint64_t bytes) {
  if (bytes >= (1U << 30U) && bytes % (1U << 30U) == 0) return std::to_string(bytes >> 30U) + "GiB";
  if (bytes >= (1U << 20U) && bytes % (1U << 20U) == 0) return std::to_string(bytes >> 20U) + "MiB";
  if (bytes >= 1024 && bytes % 1024 == 0) return std::to_string(bytes >> 10U) + "KiB";
  return std::to_string(bytes);
}

// "live, saved or disabled", if `word` is none of them; otherwise "".
std::string unless_among(std::string_view choices, std::string_view word) {
  std::string all;
  while (!choices.empty()) {
    const size_t end = std::min(choices.find(' '), choices.size());
    const std::string_view each = choices.substr(0, end);
    if (each == word) return "";
    choices.remove_prefix(std::min(end + 1, choices.size()));
    if (!all.empty()) all += choices.empty() ? " or " : ", ";
    all += each;
  }
  return all;
}

// "" or what is wrong with the value.
std::string set(Config& config, const Setting& setting, const std::string& text) {
  struct Visitor {
    Config& config;
    const std::string& text;

    // Nothing, where something was meant, must not open what it was to close: a host that is empty is
    // every address, a key that is empty is none.
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

// Nothing: a table, a list, a date.
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
  // Flags last, but they name the file.
  std::vector<std::pair<const Setting*, std::string>> flags;
  std::string file;
  if (const char* named = variable("STEMMA_CONFIG")) file = named;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--help" || word == "-h") {
      answer.help = true;
      return answer;
    }
    if (!word.starts_with("--")) {
      answer.error = "what is '" + std::string(word) + "'? Settings begin with --";
      return answer;
    }
    const size_t equals = word.find('=');
    const std::string_view name =
        word.substr(2, equals == std::string_view::npos ? word.size() : equals - 2);
    const Setting* setting = name == "config" ? nullptr : find(name);
    if (setting == nullptr && name != "config") {
      answer.error =
          "there is no --" + std::string(name) + "; 'stemma serve --help' lists what there is";
      return answer;
    }
    std::string value;
    if (equals != std::string_view::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      value = arguments[++i];
    } else if (setting != nullptr && std::holds_alternative<Switch>(setting->kind)) {
      value = "on";
    } else {
      answer.error = "--" + std::string(name) + " needs a value";
      return answer;
    }
    if (setting == nullptr) {
      file = value;
    } else {
      flags.emplace_back(setting, value);
    }
  }
  if (!file.empty()) {
    const std::optional<std::string> text = read(file);
    if (!text) {
      answer.error = "cannot read " + file;
      return answer;
    }
    answer.error = read_file(answer.config, file, *text);
    if (!answer.error.empty()) return answer;
  }
  for (const Group& group : groups()) {
    for (const Setting& setting : group.settings) {
      const std::string name = variable_of(setting);
      const char* value = variable(name.c_str());
      if (value == nullptr) continue;
      if (std::holds_alternative<Texts>(setting.kind))
        answer.config.*std::get<Texts>(setting.kind).field = {};
      if (const std::string problem = set(answer.config, setting, value); !problem.empty()) {
        answer.error = joined({name, " ", problem});
        return answer;
      }
    }
  }
  std::vector<const Setting*> cleared;
  for (const auto& [setting, value] : flags) {
    if (const auto* texts = std::get_if<Texts>(&setting->kind);
        texts != nullptr && std::ranges::find(cleared, setting) == cleared.end()) {
      answer.config.*texts->field = {};
      cleared.push_back(setting);
    }
    if (const std::string problem = set(answer.config, *setting, value); !problem.empty()) {
      answer.error = "--" + std::string(setting->name) + " " + problem;
      return answer;
    }
  }
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
      left.resize(std::max<size_t>(left.size() + 1, 32), ' ');
      out += left;
      out += setting.help;
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
      if (!value.empty()) out += " (" + value + ")";
      out += "\n";
    }
  }
  return out;
}

}  // namespace stemma::server
