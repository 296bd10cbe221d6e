// The settings of a server: built-in values, then a TOML file, then STEMMA_* variables, then flags;
// each overrides the one before. One table (config.cc) has every setting; --help prints it.
//
// Threading:  plain values and pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::server {

struct Config {
  std::string model;
  std::string alias;
  std::string model_id;
  std::vector<std::string> adapters;  // FILE or FILE:SCALE
  std::string chat_template;          // A file.
  bool keep_thinking = false;         // Of older answers, if the template can.
  bool any_model = false;             // Requests may name any model.

  std::string host = "127.0.0.1";
  uint64_t port = 8080;
  std::string api_key;
  std::string api_key_file;
  std::string cors_origin;
  uint64_t queue = 256;
  uint64_t connections = 4096;
  uint64_t body_bytes = uint64_t{64} << 20U;
  uint64_t header_bytes = uint64_t{16} << 10U;
  uint64_t read_seconds = 120;
  uint64_t write_seconds = 30;
  uint64_t keep_alive_seconds = 10;
  uint64_t drain_seconds = 30;

  uint64_t sequences = 4;
  uint64_t context = 0;  // 0: the model's own.
  uint64_t batch = 512;
  uint64_t threads = 0;  // 0: half the cores.
  std::string k_type = "f16";
  std::string v_type = "f16";
  bool flash_attention = true;
  bool split_context = false;
  std::optional<uint64_t> gpu_layers;  // Nothing: all, if there is a GPU.
  std::string embeddings = "off";      // off, on, mean, last

  std::string reuse = "everything";  // everything, live, saved, disabled
  uint64_t saved_bytes = uint64_t{1} << 30U;
  uint64_t logits_bytes = 0;
  double checkpoint_share = 0.25;
  std::string policy = "adaptive";  // For saved state; a name that make_policy() knows.
  uint64_t segment_tokens = 64;
  uint64_t interval_tokens = 0;
  std::string disk;  // A directory.
  uint64_t disk_bytes = uint64_t{10} << 30U;
  std::string disk_write = "through";  // through, back, second-use
  std::string redis;                   // A URL.
  std::string redis_write = "through";
  std::string shared_dir;  // A directory.
  uint64_t shared_bytes = uint64_t{100} << 30U;
  std::string shared_write = "through";
  uint64_t tier_queue_bytes = uint64_t{256} << 20U;
  uint64_t tier_wait_ms = 50;
  bool tier_words = false;
  uint64_t scrub_bytes_per_second = 0;  // Of the disk and the shared directory; 0: never.
  std::string seal_keys;                // A directory.
  bool seal_disk = false;  // Seal the disk tier too. With keys, the other tiers are always sealed.

  bool vllm_metrics = false;
  bool llama_metrics = false;
  bool quiet = false;  // Log no line per request.
};

struct ConfigAnswer {
  Config config;
  std::string error;  // One line; empty: no error.
  bool help = false;
};

// `variable` looks up an environment variable; `read` reads a file, or returns nothing if it cannot
// be read.
ConfigAnswer read_config(std::span<const std::string_view> arguments,
                         const std::function<const char*(const char*)>& variable,
                         const std::function<std::optional<std::string>(const std::string&)>& read);

// Finds environment variables that look like settings but are not. Returns a sentence for each that
// names the most similar setting: "STEMMA_SAVED_BYTE is not a setting; is STEMMA_SAVED_BYTES
// meant?"
std::vector<std::string> unknown_variables(std::span<const std::string> names);

// The text of --help.
std::string config_help();

// Parses "64MiB", "1.5 GiB", "4096". Returns nothing if the text is not a size.
std::optional<uint64_t> parse_size(std::string_view text);

}  // namespace stemma::server
