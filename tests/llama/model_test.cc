// LlamaModel: what it refuses, each in one line, and what its scope distinguishes.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/gguf/gguf_writer.h"
#include "llama/llama_rig.h"
#include "llama/warm_rig.h"

namespace stemma::test {
namespace {

namespace fs = std::filesystem;
using Change = std::function<void(LlamaOptions&)>;

// Beside the models, and gone with them.
std::string beside(const std::string& name) {
  return fs::path(model_file(Architecture::llama)).parent_path() / name;
}
std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return std::move(text).str();
}
std::string write(const std::string& name, const std::string& content) {
  const std::string path = beside(name);
  std::ofstream(path, std::ios::trunc) << content;
  return path;
}

// The reason why it is not loaded.
std::string why_not(const Change& change) {
  LlamaOptions options = options_for(Architecture::llama);
  change(options);
  std::string why;
  EXPECT_EQ(LlamaModel::load(options, why), nullptr);
  EXPECT_NE(why, "");
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  EXPECT_LT(why.size(), 300U) << why;
  return why;
}
void expect_says(const std::string& why, const std::string& what) {
  EXPECT_NE(why.find(what), std::string::npos) << why << "\n  says nothing of: " << what;
}

TEST(LlamaModel, MissingFileIsSaid) {
  for (const char* id : {"", "an id"}) {
    expect_says(why_not([&](LlamaOptions& options) {
                  options.path = "/no/such/model.gguf";
                  options.model_id = id;
                }),
                "/no/such/model.gguf");
  }
  const std::string folder = beside("");
  expect_says(why_not([&](LlamaOptions& options) {
                options.path = folder;
                options.model_id = "";
              }),
              "is not a file");
}

TEST(LlamaModel, TruncatedFileIsRefusedAtEveryLength) {
  const std::string whole = read(model_file(Architecture::llama));
  std::vector<size_t> lengths = {0, 1, 4, 8, 24, 100, 1000, 5000, whole.size() - 1};
  for (size_t i = 1; i < 10; ++i) lengths.push_back(whole.size() * i / 10);
  for (const size_t length : lengths) {
    const std::string path = write("cut-" + std::to_string(length), whole.substr(0, length));
    expect_says(why_not([&](LlamaOptions& options) { options.path = path; }), path);
  }
}

TEST(LlamaModel, RandomBytesAreRefused) {
  std::string bytes;
  for (uint32_t i = 0; i < 100'000; ++i) bytes += static_cast<char>(base::mix(i));
  const std::string noise = write("noise.gguf", bytes);
  expect_says(why_not([&](LlamaOptions& options) { options.path = noise; }), noise);
  // Behind a good header as well.
  std::string head = read(model_file(Architecture::llama)).substr(0, 24) + bytes;
  const std::string worse = write("worse.gguf", head);
  expect_says(why_not([&](LlamaOptions& options) { options.path = worse; }), worse);
}

TEST(LlamaModel, UnknownArchitectureIsSaid) {
  std::string bytes = read(model_file(Architecture::llama));
  const size_t key = bytes.find("general.architecture");
  ASSERT_NE(key, std::string::npos);
  bytes.replace(bytes.find("llama", key), 5, "lxama");
  const std::string path = write("lxama.gguf", bytes);
  expect_says(why_not([&](LlamaOptions& options) { options.path = path; }), "lxama");
}

TEST(LlamaModel, BadOptionsAreSaid) {
  expect_says(why_not([](LlamaOptions& o) { o.k_type = "f12"; }), "f12");
  expect_says(why_not([](LlamaOptions& o) { o.v_type = ""; }), "type of K and V");
  expect_says(why_not([](LlamaOptions& o) { o.sequences = 0; }), "not 0");
  expect_says(why_not([](LlamaOptions& o) { o.sequences = 256; }), "256");
  expect_says(why_not([](LlamaOptions& o) { o.sequences = 0xFFFF'FFFFU; }), "4294967295");
  expect_says(why_not([](LlamaOptions& o) {
                o.unified = false;
                o.context_tokens = 0xFFFF'FFFFU;
              }),
              "too large");
  // llama.cpp has no such V.
  expect_says(why_not([](LlamaOptions& o) {
                o.v_type = "q8_0";
                o.flash_attention = false;
              }),
              "context");
  expect_says(why_not([](LlamaOptions& o) { o.adapters = {{"/no/such/adapter", 1.0F}}; }),
              "/no/such/adapter");
}

// llama.cpp would stop the process.
TEST(LlamaModel, ContextsAndBatchesSmallerThanTheSequencesAreMadeLargeEnough) {
  for (const Architecture architecture : kArchitectures) {
    for (const bool unified : {true, false}) {
      LlamaOptions options = options_for(architecture);
      options.sequences = 9;
      options.unified = unified;
      options.batch_tokens = 1;
      options.context_tokens = 1;
      const std::unique_ptr<LlamaModel> model = load_model(options);
      EXPECT_GE(model->info().batch_tokens, 9U);
      EXPECT_GE(model->sequences().traits().context_tokens, 9U);
      const std::vector<Token> words = {72, 105, 33};
      EXPECT_TRUE(compute(*model, SequenceId{8}, words, 1));
    }
  }
}

TEST(LlamaModel, BatchesOfOneTokenAreEnough) {
  const std::vector<Token> words = {72, 101, 108, 108, 111, 33};
  for (const Architecture architecture : kArchitectures) {
    for (const bool unified : {true, false}) {
      LlamaOptions options = options_for(architecture);
      options.sequences = 1;
      options.unified = unified;
      options.flash_attention = false;
      const std::unique_ptr<LlamaModel> usual = load_model(options);
      const std::vector<float> right = ok(compute(*usual, SequenceId{0}, words));
      for (uint32_t batch = 1; batch <= 3; ++batch) {
        options.batch_tokens = batch;
        const std::unique_ptr<LlamaModel> model = load_model(options);
        EXPECT_LE(model->info().batch_tokens, 3U);
        EXPECT_EQ(model->sequences().traits().bytes_per_token,
                  usual->sequences().traits().bytes_per_token);
        EXPECT_EQ(model->sequences().traits().checkpoint_bytes,
                  usual->sequences().traits().checkpoint_bytes);
        EXPECT_LT(difference(right, ok(compute(*model, SequenceId{0}, words, 1))), 1e-3);
      }
    }
  }
}

// llama.cpp v0.5.0 gets this wrong for recurrent models on CPUs with AMX, unless it is kept from
// using AMX.
TEST(LlamaModel, SequencesOfOneBatchGetWhatEachGetsAlone) {
  constexpr uint32_t kSequences = 4;
  constexpr uint32_t kLength = 24;
  for (const Architecture architecture : kArchitectures) {
    LlamaOptions options = options_for(architecture);
    options.sequences = kSequences;
    const std::unique_ptr<LlamaModel> alone = load_model(options);
    const std::unique_ptr<LlamaModel> together = load_model(options);
    std::vector<BatchItem> batch;
    std::vector<std::vector<float>> right;
    for (uint32_t s = 0; s < kSequences; ++s) {
      std::vector<Token> words;
      for (uint32_t i = 0; i < kLength; ++i) {
        words.push_back(static_cast<Token>(97 + (i * (s + 3) + s) % 26));
        batch.push_back({.token = words.back(),
                         .position = i,
                         .sequence = SequenceId{s},
                         .logits = i + 1 == kLength});
      }
      right.push_back(ok(compute(*alone, SequenceId{s}, words)));
    }
    ASSERT_TRUE(together->decode(batch));
    for (uint32_t s = 0; s < kSequences; ++s) {
      const std::span<const float> found = together->logits((s + 1) * kLength - 1);
      EXPECT_LT(difference(right[s], found), 1e-3)
          << "architecture " << static_cast<int>(architecture) << ", sequence " << s;
    }
  }
}

// Making it would have the system end the process.
TEST(LlamaModel, ContextThatDoesNotFitIntoMemoryIsRefusedWithNumbers) {
  const uint64_t a_token =
      load_model(options_for(Architecture::llama))->sequences().traits().bytes_per_token;
  const auto tight = [&](LlamaOptions& options) { options.memory_bytes = 1000 * a_token; };
  expect_says(why_not(tight), "a context of 1024 tokens needs");
  expect_says(why_not(tight), "choose a context of at most 768 tokens");
  // The machine's free memory is also less than this needs.
  expect_says(why_not([](LlamaOptions& options) { options.context_tokens = 0xFFFF'0000U; }),
              "a context of 4294901760 tokens needs");
  LlamaOptions enough = options_for(Architecture::llama);
  enough.memory_bytes = 1024 * a_token;
  EXPECT_EQ(load_model(enough)->sequences().traits().context_tokens, 1024U);
  // A split context has its size for each sequence.
  const auto split = [&](LlamaOptions& options) {
    tight(options);
    options.unified = false;
    options.context_tokens = 512;
  };
  expect_says(why_not(split), "a context of 512 tokens for each of 4 sequences needs");
  // A recurrent model's memory does not grow with its context.
  LlamaOptions recurrent = options_for(Architecture::recurrent);
  recurrent.memory_bytes = 1;
  EXPECT_NE(load_model(recurrent), nullptr);
}

// The tests of tests/program/gpu_test.py say what is wrong with plugins; here there may be a GPU.
TEST(LlamaModel, LayersOnAGpuThatIsNotThereAreRefused) {
  const engine::GpuSearch found = engine::find_gpus();
  if (!found.gpus.empty()) GTEST_SKIP() << "there is a GPU";
  const std::string why = why_not([](LlamaOptions& options) { options.gpu_layers = 2; });
  expect_says(why, "--gpu-layers 2, but no GPU can be used: " + why_no_gpu(found));
  // If no GPU was requested, the CPU computes.
  const engine::Placement placement =
      load_model(options_for(Architecture::llama))->info().placement;
  EXPECT_TRUE(placement.gpus.empty());
  EXPECT_EQ(placement.gpu_layers, 0U);
  EXPECT_EQ(placement.layers, 5U);  // Four, and the output.
  EXPECT_EQ(placement.why_cpu, why_no_gpu(found));
}

TEST(LlamaModel, WithoutLayersOnAGpuTheCpuComputes) {
  LlamaOptions options = options_for(Architecture::llama);
  options.gpu_layers = 0;
  const engine::Placement placement = load_model(options)->info().placement;
  EXPECT_TRUE(placement.gpus.empty());
  expect_says(placement.why_cpu, "--gpu-layers 0");
}

TEST(LlamaModel, ProgressIsToldAndMayStopIt) {
  std::vector<std::string> told;
  LlamaOptions options = options_for(Architecture::llama);
  options.model_id = "";
  options.progress = [&](const char* what, double done) {
    EXPECT_GE(done, 0.0);
    EXPECT_LE(done, 1.0);
    told.emplace_back(what);
    return true;
  };
  load_model(options);
  EXPECT_NE(std::ranges::find(told, "reading"), told.end());
  EXPECT_NE(std::ranges::find(told, "loading"), told.end());
  for (const std::string stop : {"reading", "loading"}) {
    why_not([&](LlamaOptions& o) {
      o.model_id = "";
      o.progress = [stop](const char* what, double) { return what != stop; };
    });
  }
}

// ---- Scopes -------------------------------------------------------------------------------------

Scope scope_with(const Change& change) {
  LlamaOptions options = options_for(Architecture::llama);
  options.path = model_file(Architecture::llama, 1, 16, 128);  // Wide enough for q8_0.
  options.model_id = "";
  change(options);
  return ok(Scope::make(load_model(options)->info().scope));
}

// Weights that are added to one matrix of the model.
std::string adapter_file(const std::string& name, float value) {
  const std::string path = beside(name);
  gguf::GgufHeader header;
  header.set_string("general.type", "adapter");
  header.set_string("general.architecture", "llama");
  header.set_string("adapter.type", "lora");
  header.set_f32("adapter.lora.alpha", 4.0F);
  header.add_tensor(
      {"blk.0.attn_q.weight.lora_a", gguf::TensorType::f32, std::vector<uint64_t>{128, 4}});
  header.add_tensor(
      {"blk.0.attn_q.weight.lora_b", gguf::TensorType::f32, std::vector<uint64_t>{4, 128}});
  gguf::GgufWriter writer = ok(gguf::GgufWriter::create(path, header, gguf::OnExisting::replace));
  const std::vector<float> numbers(512, value);
  ok(writer.write(numbers));
  ok(writer.write(numbers));
  ok(writer.finish());
  return path;
}

TEST(LlamaScope, TellsApartWhatStatesMustAgreeIn) {
  const std::string one = adapter_file("one.gguf", 0.1F);
  const std::string two = adapter_file("two.gguf", 0.2F);
  const std::vector<Change> changes = {
      [](LlamaOptions&) {},
      [](LlamaOptions& o) { o.path = model_file(Architecture::llama, 2, 16, 128); },
      [](LlamaOptions& o) { o.k_type = "q8_0"; },
      [](LlamaOptions& o) { o.v_type = "q8_0"; },
      [](LlamaOptions& o) { o.k_type = o.v_type = "q8_0"; },
      [](LlamaOptions& o) { o.flash_attention = false; },
      [](LlamaOptions& o) { o.unified = false; },
      [](LlamaOptions& o) { o.model_id = "named"; },
      [&](LlamaOptions& o) { o.adapters = {{one, 1.0F}}; },
      [&](LlamaOptions& o) { o.adapters = {{one, 0.5F}}; },
      [&](LlamaOptions& o) { o.adapters = {{two, 1.0F}}; },
      [&](LlamaOptions& o) { o.adapters = {{one, 1.0F}, {two, 1.0F}}; },
  };
  std::vector<Scope> scopes;
  for (const Change& change : changes) scopes.push_back(scope_with(change));
  for (size_t a = 0; a < scopes.size(); ++a) {
    for (size_t b = 0; b < a; ++b) EXPECT_NE(scopes[a], scopes[b]) << a << " and " << b;
  }
}

TEST(LlamaScope, IsTheSameWhereStatesAgree) {
  const Scope scope = scope_with([](LlamaOptions&) {});
  const std::string copy = write("copy.gguf", read(model_file(Architecture::llama, 1, 16, 128)));
  EXPECT_EQ(scope_with([&](LlamaOptions& o) { o.path = copy; }), scope) << "another path";
  EXPECT_EQ(scope_with([](LlamaOptions& o) { o.sequences = 7; }), scope);
  EXPECT_EQ(scope_with([](LlamaOptions& o) { o.context_tokens = 512; }), scope);
  EXPECT_EQ(scope_with([](LlamaOptions& o) { o.batch_tokens = 64; }), scope);
  EXPECT_EQ(scope_with([](LlamaOptions& o) { o.threads = 2; }), scope);
  const std::string memory = beside("ids");
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(scope_with([&](LlamaOptions& o) { o.id_memory = memory; }), scope) << "remembered";
  }
  const std::string one = adapter_file("one.gguf", 0.1F);
  const std::string same = write("same.gguf", read(one));
  EXPECT_EQ(scope_with([&](LlamaOptions& o) { o.adapters = {{one, 1.0F}}; }),
            scope_with([&](LlamaOptions& o) { o.adapters = {{same, 1.0F}}; }));
}

TEST(LlamaScope, GivenIdReplacesTheContents) {
  const auto named = [](uint64_t seed) {
    return scope_with([=](LlamaOptions& o) {
      o.path = model_file(Architecture::llama, seed, 16, 128);
      o.model_id = "named";
    });
  };
  EXPECT_EQ(named(1), named(2));
}

// An adapter that is in the scope is in the logits too.
TEST(LlamaScope, AdaptersAreApplied) {
  LlamaOptions options = options_for(Architecture::llama);
  options.path = model_file(Architecture::llama, 1, 16, 128);
  const auto plain = ok(compute(*load_model(options), SequenceId{0}, words(30).tokens));
  options.adapters = {{adapter_file("one.gguf", 0.5F), 1.0F}};
  const auto adapted = ok(compute(*load_model(options), SequenceId{0}, words(30).tokens));
  EXPECT_GT(difference(plain, adapted), kNear);
}

}  // namespace
}  // namespace stemma::test
