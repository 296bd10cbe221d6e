// Tests the configuration: which source overrides which, and that wrong values are named.
#include "server/config.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "retain/policies.h"
#include "stemma/retention.h"

namespace stemma::server {
namespace {

using Environment = std::map<std::string, std::string>;

// Flags, variables, and the text of the file "stemma.toml".
ConfigAnswer read(const std::vector<std::string_view>& flags, const Environment& variables = {},
                  const std::optional<std::string>& file = {}) {
  return read_config(
      flags,
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      [&](const std::string& path) -> std::optional<std::string> {
        return path == "stemma.toml" ? file : std::nullopt;
      });
}
ConfigAnswer read_toml(const std::string& text) {
  return read({"--config", "stemma.toml"}, {}, text);
}

TEST(ConfigSizes, AreBytesWithOrWithoutAUnit) {
  EXPECT_EQ(parse_size("0"), 0U);
  EXPECT_EQ(parse_size("4096"), 4096U);
  EXPECT_EQ(parse_size("4096B"), 4096U);
  EXPECT_EQ(parse_size("64KiB"), 65536U);
  EXPECT_EQ(parse_size("64K"), 65536U);
  EXPECT_EQ(parse_size("64 KiB"), 65536U);
  EXPECT_EQ(parse_size("1MiB"), 1U << 20U);
  EXPECT_EQ(parse_size("1M"), 1U << 20U);
  EXPECT_EQ(parse_size("1.5 GiB"), 3U << 29U);
  EXPECT_EQ(parse_size("2G"), uint64_t{2} << 30U);
  EXPECT_EQ(parse_size("3TiB"), uint64_t{3} << 40U);
  EXPECT_EQ(parse_size("3T"), uint64_t{3} << 40U);
  EXPECT_EQ(parse_size("1KB"), 1000U);
  EXPECT_EQ(parse_size("1MB"), 1'000'000U);
  EXPECT_EQ(parse_size("1GB"), 1'000'000'000U);
  EXPECT_EQ(parse_size("1TB"), 1'000'000'000'000U);
  for (const char* bad : {"", " ", "B", "MiB", "-1", "+1", "1.2.3", ".", "1 2", "1QiB", "1 MiB x",
                          "0x10", "1e9", "9000000TiB", "99999999999999999999", "nan"}) {
    EXPECT_FALSE(parse_size(bad)) << bad;
  }
}

TEST(Config, WhenATierIsWrittenIsAWordFromEverySource) {
  EXPECT_EQ(read({}).config.disk_write, "through");
  EXPECT_EQ(read({"--disk-write", "back"}).config.disk_write, "back");
  EXPECT_EQ(read({}).config.scrub_bytes_per_second, 0U);
  EXPECT_EQ(read({"--scrub-bytes-per-second", "20MB"}).config.scrub_bytes_per_second, 20'000'000U);
  EXPECT_EQ(read({"--scrub-bytes-per-second", "0"}).config.scrub_bytes_per_second, 0U);
  EXPECT_NE(read({"--scrub-bytes-per-second", "often"}).error, "");
  EXPECT_EQ(read({}, {{"STEMMA_REDIS_WRITE", "second-use"}}).config.redis_write, "second-use");
  EXPECT_EQ(read_toml("shared_write = \"back\"").config.shared_write, "back");
  EXPECT_EQ(read_toml("seal_keys = \"/keys\"").config.seal_keys, "/keys");
  EXPECT_EQ(read({"--disk-write", "never"}).error,
            "--disk-write takes through, back or second-use, not 'never'");
  EXPECT_EQ(read({"--tier-queue-bytes", "1MiB"}).error,
            "--tier-queue-bytes takes a size of at least 64MiB, not '1MiB'");
}

// A GPU that was requested must exist; otherwise a GPU is used if there is one.
TEST(Config, LayersOnAGpuAreAskedForOrNot) {
  EXPECT_EQ(read({}).config.gpu_layers, std::nullopt);
  EXPECT_EQ(read({"--gpu-layers", "0"}).config.gpu_layers, 0U);
  EXPECT_EQ(read({}, {{"STEMMA_GPU_LAYERS", "9999"}}).config.gpu_layers, 9999U);
  EXPECT_EQ(read_toml("gpu_layers = 12").config.gpu_layers, 12U);
  for (const char* wrong : {"-1", "10000", "all"}) {
    EXPECT_EQ(read({"--gpu-layers", wrong}).error,
              "--gpu-layers takes a number from 0 to 9999, not '" + std::string(wrong) + "'");
  }
}

TEST(ConfigPrecedence, FlagsOverVariablesOverTheFileOverWhatIsBuiltIn) {
  EXPECT_EQ(read({}).config.queue, Config{}.queue);
  EXPECT_EQ(read_toml("queue = 1").config.queue, 1U);
  const Environment variables = {{"STEMMA_QUEUE", "2"}, {"STEMMA_CONFIG", "stemma.toml"}};
  EXPECT_EQ(read({}, variables, "queue = 1").config.queue, 2U);
  EXPECT_EQ(read({"--queue", "3"}, variables, "queue = 1").config.queue, 3U);
  EXPECT_EQ(read({"--queue=3", "--queue=4"}, variables, "queue = 1").config.queue, 4U);
}

TEST(ConfigPrecedence, FlagsNameTheFileBeforeTheVariable) {
  const Environment variables = {{"STEMMA_CONFIG", "not there"}};
  EXPECT_EQ(read({}, variables).error, "cannot read not there");
  EXPECT_EQ(read({"--config=stemma.toml"}, variables, "queue = 7").config.queue, 7U);
}

TEST(ConfigPrecedence, ListsAreReplacedAndNotMixed) {
  using List = std::vector<std::string>;
  const std::string file = R"(adapter = ["a", "b:0.5"])";
  EXPECT_EQ(read_toml(file).config.adapters, (List{"a", "b:0.5"}));
  EXPECT_EQ(read_toml(R"(adapter = "a")").config.adapters, List{"a"});
  EXPECT_EQ(read({"--config=stemma.toml"}, {{"STEMMA_ADAPTER", "c"}}, file).config.adapters,
            List{"c"});
  EXPECT_EQ(read({"--adapter", "d", "--config=stemma.toml", "--adapter=e"},
                 {{"STEMMA_ADAPTER", "c"}}, file)
                .config.adapters,
            (List{"d", "e"}));
}

TEST(Config, EveryKindOfValueComesFromEverySource) {
  const ConfigAnswer file = read_toml(
      "model = \"m.gguf\"\nport = 0\nsaved_bytes = \"2GiB\"\nlogits-bytes = 4096\n"
      "checkpoint_share = 0.5\nquiet = true\nflash_attention = \"off\"\n");
  ASSERT_EQ(file.error, "");
  EXPECT_EQ(file.config.model, "m.gguf");
  EXPECT_EQ(file.config.port, 0U);
  EXPECT_EQ(file.config.saved_bytes, uint64_t{2} << 30U);
  EXPECT_EQ(file.config.logits_bytes, 4096U);
  EXPECT_EQ(file.config.checkpoint_share, 0.5);
  EXPECT_TRUE(file.config.quiet);
  EXPECT_FALSE(file.config.flash_attention);

  const ConfigAnswer variables = read({}, {{"STEMMA_MODEL", "m.gguf"},
                                           {"STEMMA_PORT", "65535"},
                                           {"STEMMA_SAVED_BYTES", "1MiB"},
                                           {"STEMMA_CHECKPOINT_SHARE", "1"},
                                           {"STEMMA_QUIET", "yes"}});
  ASSERT_EQ(variables.error, "");
  EXPECT_EQ(variables.config.model, "m.gguf");
  EXPECT_EQ(variables.config.port, 65535U);
  EXPECT_EQ(variables.config.saved_bytes, 1U << 20U);
  EXPECT_EQ(variables.config.checkpoint_share, 1.0);
  EXPECT_TRUE(variables.config.quiet);

  const ConfigAnswer flags =
      read({"--model", "m.gguf", "--port=1", "--saved-bytes", "1K", "--checkpoint-share", "0",
            "--quiet", "--flash-attention=off", "--vllm-metrics", "on", "--host=::1"});
  ASSERT_EQ(flags.error, "");
  EXPECT_EQ(flags.config.model, "m.gguf");
  EXPECT_EQ(flags.config.port, 1U);
  EXPECT_EQ(flags.config.saved_bytes, 1024U);
  EXPECT_EQ(flags.config.checkpoint_share, 0.0);
  EXPECT_TRUE(flags.config.quiet && flags.config.vllm_metrics);
  EXPECT_FALSE(flags.config.flash_attention);
  EXPECT_EQ(flags.config.host, "::1");
}

TEST(Config, EveryPolicyThatThereIsCanBeChosen) {
  EXPECT_EQ(read({}).config.policy, "adaptive");
  EXPECT_TRUE(knows_policy("default"));
  for (const std::string_view name : retain::policy_names()) {
    const ConfigAnswer answer = read({"--policy", name});
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(answer.config.policy, name);
  }
  EXPECT_EQ(
      read({"--policy=mru"}).error,
      "--policy takes adaptive, lru, lru_k, slru, arc, s3_fifo, sieve, gdsf or default, not 'mru'");
}

TEST(Config, SharesAreReadToTheLastDigit) {
  EXPECT_EQ(read_toml("checkpoint_share = 0.123456789").config.checkpoint_share, 0.123456789);
  EXPECT_EQ(read({"--checkpoint-share=0.123456789"}).config.checkpoint_share, 0.123456789);
}

TEST(ConfigErrors, NameTheFlagAndWhatItTakes) {
  const auto error = [](const std::vector<std::string_view>& flags) { return read(flags).error; };
  EXPECT_EQ(error({"--port", "many"}), "--port takes a number from 0 to 65535, not 'many'");
  EXPECT_EQ(error({"--port", "65536"}), "--port takes a number from 0 to 65535, not '65536'");
  EXPECT_EQ(error({"--port", "-1"}), "--port takes a number from 0 to 65535, not '-1'");
  EXPECT_EQ(error({"--port="}), "--port takes a number from 0 to 65535, not ''");
  EXPECT_EQ(error({"--port=1.5"}), "--port takes a number from 0 to 65535, not '1.5'");
  EXPECT_EQ(error({"--sequences=0"}), "--sequences takes a number from 1 to 255, not '0'");
  EXPECT_EQ(error({"--saved-bytes=lots"}),
            "--saved-bytes takes a size, like 512MiB or 2GiB, not 'lots'");
  EXPECT_EQ(error({"--checkpoint-share=1.1"}),
            "--checkpoint-share takes a number from 0 to 1, not '1.1'");
  EXPECT_EQ(error({"--checkpoint-share=nan"}),
            "--checkpoint-share takes a number from 0 to 1, not 'nan'");
  EXPECT_EQ(error({"--checkpoint-share=0.5x"}),
            "--checkpoint-share takes a number from 0 to 1, not '0.5x'");
  EXPECT_EQ(error({"--quiet=maybe"}), "--quiet takes on or off, not 'maybe'");
  EXPECT_EQ(error({"--reuse=some"}),
            "--reuse takes everything, live, saved or disabled, not 'some'");
  EXPECT_EQ(error({"--model"}), "--model needs a value");
  EXPECT_EQ(error({"--model", "--quiet"}), "--model needs a value");
  EXPECT_EQ(error({"--config"}), "--config needs a value");
  EXPECT_EQ(error({"--moddel=x"}),
            "there is no --moddel; 'stemma serve --help' lists what there is");
  EXPECT_EQ(error({"model.gguf"}), "what is 'model.gguf'? Settings begin with --");
  EXPECT_EQ(error({"-m"}), "what is '-m'? Settings begin with --");
}

TEST(ConfigErrors, NothingIsNoText) {
  // An empty host would mean every address, an empty key no key.
  for (const char* name : {"host", "api-key", "api-key-file", "model", "adapter", "alias"}) {
    const std::string flag = "--" + std::string(name);
    EXPECT_EQ(read({flag + "="}).error, flag + " takes a text that is not empty, not ''");
    EXPECT_NE(read({flag, ""}).error, "");
  }
  EXPECT_EQ(read({}, {{"STEMMA_API_KEY", ""}}).error,
            "STEMMA_API_KEY takes a text that is not empty, not ''");
  EXPECT_EQ(read_toml("host = \"\"").error,
            "stemma.toml: host takes a text that is not empty, not ''");
}

TEST(ConfigErrors, LimitsThatRefuseEverythingAreRefused) {
  EXPECT_EQ(read({"--header-bytes=0"}).error,
            "--header-bytes takes a size of at least 1KiB, not '0'");
  EXPECT_EQ(read({"--body-bytes=1023"}).error,
            "--body-bytes takes a size of at least 1KiB, not '1023'");
  EXPECT_EQ(read({"--body-bytes=1KiB", "--header-bytes=1KiB"}).error, "");
  EXPECT_EQ(read({"--saved-bytes=0"}).error, "");
}

TEST(ConfigErrors, NameTheVariable) {
  EXPECT_EQ(read({}, {{"STEMMA_PORT", "x"}}).error,
            "STEMMA_PORT takes a number from 0 to 65535, not 'x'");
  EXPECT_EQ(read({}, {{"STEMMA_LOGITS_BYTES", "1 pint"}}).error,
            "STEMMA_LOGITS_BYTES takes a size, like 512MiB or 2GiB, not '1 pint'");
}

TEST(ConfigErrors, NameTheFileAndTheLine) {
  EXPECT_EQ(read_toml("queue = many").error.substr(0, 20), "stemma.toml, line 1:");
  EXPECT_EQ(read_toml("queue = 1\n\nport = [1,\n").error.substr(0, 18), "stemma.toml, line ");
  EXPECT_EQ(read_toml("queue = 1\n\nhost = \"x\n").error.substr(0, 20), "stemma.toml, line 3:");
  EXPECT_EQ(read_toml("queue = 1\nqueue = 2").error.substr(0, 20), "stemma.toml, line 2:");
  EXPECT_EQ(read_toml("queue = -1").error,
            "stemma.toml: queue takes a number from 1 to 1000000, not '-1'");
  EXPECT_EQ(read_toml("queues = 1").error, "stemma.toml: there is no setting 'queues'");
  EXPECT_EQ(read_toml("config = \"other.toml\"").error,
            "stemma.toml: there is no setting 'config'");
  EXPECT_EQ(read_toml("[server]\nport = 1").error, "stemma.toml: there is no setting 'server'");
  EXPECT_EQ(read_toml("[port]\nport = 1").error,
            "stemma.toml: port takes one text, number, true or false");
  EXPECT_EQ(read_toml("port = [1, 2]").error,
            "stemma.toml: port takes one text, number, true or false");
}

TEST(ConfigErrors, ValuesOfOtherKindsAreRefused) {
  EXPECT_EQ(read_toml("alias = 1979-05-27").error,
            "stemma.toml: alias takes one text, number, true or false");
  EXPECT_EQ(read_toml("adapter = [\"a\", [\"b\"]]").error,
            "stemma.toml: adapter takes one text, number, true or false");
}

TEST(ConfigErrors, FileThatCannotBeReadIsOne) {
  EXPECT_EQ(read({"--config", "nowhere.toml"}).error, "cannot read nowhere.toml");
}

TEST(Config, HelpIsAllThatIsDoneWhereItIsAskedFor) {
  EXPECT_TRUE(read({"--help"}).help);
  EXPECT_TRUE(read({"-h", "--no-such-thing"}).help);
  EXPECT_FALSE(read({}).help);
}

TEST(Config, HelpListsEverySettingWithItsUsualValue) {
  const std::string help = config_help();
  // The same settings as in Config.
  for (const char* setting : {"model",
                              "alias",
                              "model-id",
                              "adapter",
                              "chat-template",
                              "host",
                              "port",
                              "api-key",
                              "api-key-file",
                              "cors-origin",
                              "queue",
                              "connections",
                              "body-bytes",
                              "header-bytes",
                              "read-seconds",
                              "write-seconds",
                              "drain-seconds",
                              "keep-alive-seconds",
                              "sequences",
                              "context",
                              "batch",
                              "threads",
                              "k-type",
                              "v-type",
                              "flash-attention",
                              "split-context",
                              "embeddings",
                              "gpu-layers",
                              "reuse",
                              "saved-bytes",
                              "logits-bytes",
                              "checkpoint-share",
                              "policy",
                              "segment-tokens",
                              "interval-tokens",
                              "disk",
                              "disk-bytes",
                              "disk-write",
                              "redis",
                              "redis-write",
                              "shared-dir",
                              "shared-bytes",
                              "shared-write",
                              "tier-queue-bytes",
                              "tier-wait-ms",
                              "tier-words",
                              "scrub-bytes-per-second",
                              "seal-keys",
                              "seal-disk",
                              "any-model",
                              "keep-thinking",
                              "vllm-metrics",
                              "llama-metrics",
                              "quiet"}) {
    const size_t at = help.find("\n  --" + std::string(setting) + " ");
    EXPECT_NE(at, std::string::npos) << setting;
    // Each name is known, even if the value does not suit it.
    const std::string flag = "--" + std::string(setting) + "=1";
    EXPECT_EQ(read({flag}).error.find("there is no"), std::string::npos);
  }
  size_t listed = 0;
  for (size_t at = help.find("\n  --"); at != std::string::npos; at = help.find("\n  --", at + 1))
    ++listed;
  EXPECT_EQ(listed, 54U) << "a setting that this test does not know";
  for (const char* usual : {"(127.0.0.1)", "(8080)", "(64MiB)", "(16KiB)", "(1GiB)", "(0.25)",
                            "(everything)", "(on)", "(off)", "(f16)"}) {
    EXPECT_NE(help.find(usual), std::string::npos) << usual;
  }
}

TEST(Config, MisspelledVariablesAreNamed) {
  const std::vector<std::string> names = {"PATH",
                                          "STEMMA_MODEL",
                                          "STEMMA_CONFIG",
                                          "STEMMA_TEST_STILL_CLOCK",
                                          "STEMMA_DISK_BYTES",
                                          "STEMMA_SAVED_BYTE",
                                          "STEMMA_APIKEY_FILE",
                                          "STEMMA_PROT"};
  EXPECT_EQ(
      unknown_variables(names),
      (std::vector<std::string>{
          "STEMMA_SAVED_BYTE is not a setting and has no effect; is STEMMA_SAVED_BYTES meant?",
          "STEMMA_APIKEY_FILE is not a setting and has no effect; is STEMMA_API_KEY_FILE "
          "meant?",
          "STEMMA_PROT is not a setting and has no effect; is STEMMA_PORT meant?"}));
}

}  // namespace
}  // namespace stemma::server
