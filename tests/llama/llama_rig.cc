#include "llama/llama_rig.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <tuple>

namespace stemma::test {

namespace {

// A folder that is removed when the process ends.
struct Folder {
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "stemma-models-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

}  // namespace

std::string model_file(Architecture architecture, uint64_t seed, uint32_t window, uint32_t dim) {
  static const Folder folder;
  static std::map<std::tuple<Architecture, uint64_t, uint32_t, uint32_t>, std::string> files;
  std::string& file = files[{architecture, seed, window, dim}];
  if (!file.empty()) return file;
  file = folder.path / (std::string(gguf::to_string(architecture)) + "-" + std::to_string(seed) +
                        "-" + std::to_string(window) + "-" + std::to_string(dim) + ".gguf");
  gguf::ModelShape shape;
  shape.architecture = architecture;
  shape.dim = dim;
  shape.seed = seed;
  shape.window = window;
  const auto written = gguf::write_model(shape, file);
  if (!written) {
    std::fprintf(stderr, "no model: %s\n", written.error().to_string().c_str());
    std::abort();
  }
  return file;
}

LlamaOptions options_for(Architecture architecture) {
  LlamaOptions options;
  options.path = model_file(architecture);
  options.model_id = "test";
  options.sequences = 4;
  options.context_tokens = 1024;
  options.threads = 1;
  return options;
}

std::unique_ptr<LlamaModel> load_model(LlamaOptions options) {
  std::string why;
  std::unique_ptr<LlamaModel> model = LlamaModel::load(options, why);
  if (model == nullptr) {
    std::fprintf(stderr, "no model: %s\n", why.c_str());
    std::abort();
  }
  return model;
}

Result<std::vector<float>> compute(LlamaModel& model, SequenceId sequence,
                                   std::span<const Token> words, uint32_t step) {
  std::vector<BatchItem> batch;
  const uint32_t begin = model.sequences().held(sequence).end;
  for (uint32_t done = 0; done < words.size();) {
    batch.clear();
    const uint32_t end = std::min<uint32_t>(words.size(), done + step);
    for (uint32_t i = done; i < end; ++i) {
      batch.push_back({words[i], begin + i, sequence, i + 1 == words.size()});
    }
    STEMMA_TRY_VOID(model.decode(batch));
    done = end;
  }
  const std::span<const float> logits = model.logits(static_cast<uint32_t>(batch.size()) - 1);
  return std::vector<float>(logits.begin(), logits.end());
}

double difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || a.empty()) return 1e9;
  double mean = 0;
  for (const float value : a) mean += value;
  mean /= static_cast<double>(a.size());
  double spread = 0;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    spread += (a[i] - mean) * (a[i] - mean);
    const double apart = std::abs(static_cast<double>(a[i]) - b[i]);
    most = std::isnan(apart) ? 1e9 : std::max(most, apart);
  }
  return most / std::sqrt(spread / static_cast<double>(a.size()));
}

std::vector<Token> in_vocabulary(std::span<const Token> words) {
  std::vector<Token> inside;
  for (const Token word : words) inside.push_back(word % 256);
  return inside;
}

}  // namespace stemma::test
