#include "engine/gguf/make_model.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/gguf/byte_vocabulary.h"
#include "engine/gguf/test_reader.h"
#include "key/sha256.h"

namespace stemma::gguf {
namespace {

constexpr Architecture kAll[] = {Architecture::llama, Architecture::window, Architecture::recurrent,
                                 Architecture::hybrid};

ModelShape small(Architecture architecture) {
  ModelShape shape;
  shape.architecture = architecture;
  shape.layers = 2;
  shape.dim = 64;
  shape.window = 16;
  shape.context = 512;
  return shape;
}

std::string sha256_of(const std::string& path) {
  const std::string bytes = read_bytes(path);
  const key::Digest digest =
      key::sha256({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string problem_of(const ModelShape& shape) {
  const auto checked = check_shape(shape);
  return checked ? "" : checked.error().message();
}

TEST(MakeModel, SameShapeSameBytesEverywhere) {
  // If these change, all models that tests and results were made with change too: say so in the
  // commit.
  const std::string expected[] = {
      "08941df73bd20ca5f416afa563452376215cc29c561a635404651cbbaedd2d4c",
      "fb8a9d546bfc78139b4b799513969838ce9ca0fc411249addea5f439d3b2a254",
      "0f638bb19a442b6b2070bd146bdaee55bbaae47f892b4cf18bcf2a4ed0c94102",
      "6d6de872314e31e38c6706e135b2ba511ea5eab592a5e859e7841526f5924d58",
  };
  const Folder folder;
  for (const Architecture architecture : kAll) {
    const std::string path = folder / to_string(architecture);
    ModelShape shape = small(architecture);
    if (architecture == Architecture::hybrid) shape.type = TensorType::f16;
    write_model(shape, path).value();
    EXPECT_EQ(sha256_of(path), expected[static_cast<size_t>(architecture)])
        << to_string(architecture);
  }
}

TEST(MakeModel, AnotherSeedIsAnotherModel) {
  const Folder folder;
  ModelShape shape = small(Architecture::llama);
  write_model(shape, folder / "one").value();
  shape.seed = 2;
  write_model(shape, folder / "two").value();
  EXPECT_NE(sha256_of(folder / "one"), sha256_of(folder / "two"));
}

TEST(MakeModel, TheFileIsWhatTheSizesSay) {
  const Folder folder;
  for (const Architecture architecture : kAll) {
    for (const TensorType type : {TensorType::f32, TensorType::f16}) {
      SCOPED_TRACE(to_string(architecture));
      ModelShape shape = small(architecture);
      shape.type = type;
      const std::string path = folder / "model";
      uint64_t done = 0;
      uint64_t total = 0;
      const ModelSize size =
          write_model(shape, path, OnExisting::replace, [&](uint64_t now, uint64_t all) {
            EXPECT_GE(now, done);
            done = now;
            total = all;
          }).value();
      const ReadFile file(read_bytes(path));
      EXPECT_EQ(file.bytes, size.file_bytes);
      EXPECT_EQ(done, size.file_bytes);
      EXPECT_EQ(total, size.file_bytes);
      EXPECT_EQ(size_of(shape).value().parameters, size.parameters);
      uint64_t parameters = 0;
      for (const auto& [name, tensor] : file.tensors) {
        parameters += tensor.values.size();
        EXPECT_EQ(tensor.type == 1, type == TensorType::f16 && tensor.dims.size() == 2 &&
                                        name.find("conv1d") == std::string::npos &&
                                        name.find("ssm_a") == std::string::npos)
            << name;
        for (const float value : tensor.values) ASSERT_TRUE(std::isfinite(value)) << name;
      }
      EXPECT_EQ(parameters, size.parameters);
    }
  }
}

TEST(MakeModel, SaysHowMuchASequenceTakes) {
  ModelShape shape = small(Architecture::llama);  // Heads of 16 numbers, two of them with keys.
  EXPECT_EQ(size_of(shape).value().kv_bytes_per_token, 2U * 2 * 32 * 2);
  shape.architecture = Architecture::window;
  EXPECT_EQ(size_of(shape).value().kv_bytes_per_token, 2U * 2 * 32);
  EXPECT_EQ(size_of(shape).value().window_bytes_per_token, 2U * 2 * 32);
  shape.architecture = Architecture::recurrent;
  EXPECT_EQ(size_of(shape).value().kv_bytes_per_token, 0U);
  EXPECT_EQ(size_of(shape).value().state_bytes, 2U * 128 * (3 + 16) * 4);
}

TEST(MakeModel, WeightsAreOfTheirSize) {
  const Folder folder;
  write_model(small(Architecture::llama), folder / "model").value();
  const ReadFile file(read_bytes(folder / "model"));
  const auto& values = file.tensors.at("blk.0.attn_v.weight").values;
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(std::sqrt(squares / count), 1 / std::sqrt(64.0), 0.005);
}

TEST(MakeModel, BadShapesAreNamed) {
  const auto with = [](auto change) {
    ModelShape shape;
    change(shape);
    return problem_of(shape);
  };
  EXPECT_EQ(with([](ModelShape&) {}), "");
  EXPECT_EQ(with([](ModelShape& s) { s.layers = 0; }), "layers must be from 1 to 512");
  EXPECT_EQ(with([](ModelShape& s) { s.layers = 513; }), "layers must be from 1 to 512");
  EXPECT_EQ(with([](ModelShape& s) { s.dim = 16; }), "dim must be from 32 to 16384");
  EXPECT_EQ(with([](ModelShape& s) { s.dim = 250; }), "dim must be a multiple of 16");
  EXPECT_EQ(with([](ModelShape& s) { s.heads = 0; }), "heads must be at least 1");
  EXPECT_EQ(with([](ModelShape& s) { s.heads = 7; }), "dim must be a multiple of heads");
  EXPECT_EQ(with([](ModelShape& s) { s.dim = 48, s.heads = 16; }),
            "the width of a head, dim / heads, must be even");
  EXPECT_EQ(with([](ModelShape& s) { s.kv_heads = 0; }), "kv-heads must be at least 1");
  EXPECT_EQ(with([](ModelShape& s) { s.kv_heads = 3; }), "heads must be a multiple of kv-heads");
  EXPECT_EQ(with([](ModelShape& s) { s.ff = 1 << 20; }), "ff must be at most 131072");
  EXPECT_EQ(with([](ModelShape& s) { s.context = 0; }), "context must be from 1 to 16777216");
  EXPECT_EQ(with([](ModelShape& s) { s.architecture = Architecture::window, s.window = 0; }),
            "window must be at least 1");
  EXPECT_EQ(with([](ModelShape& s) { s.architecture = Architecture::window, s.window = 9000; }),
            "window must not be longer than context");
  EXPECT_EQ(with([](ModelShape& s) { s.architecture = Architecture::hybrid, s.layers = 1; }),
            "two kinds of layers take turns, so there must be two of them");
  EXPECT_EQ(with([](ModelShape& s) { s.architecture = static_cast<Architecture>(9); }),
            "there is no such architecture");
  // Recurrent models have no heads that matter.
  EXPECT_EQ(with([](ModelShape& s) { s.architecture = Architecture::recurrent, s.heads = 0; }), "");
  const Folder folder;
  ModelShape bad;
  bad.heads = 7;
  EXPECT_FALSE(write_model(bad, folder / "model"));
  EXPECT_EQ(folder.files(), 0U);
}

TEST(MakeModel, AFullDiskIsAnError) {
  const auto written = write_model(ModelShape(), "/dev/full", OnExisting::replace);
  ASSERT_FALSE(written);
  EXPECT_STREQ(written.error().message(), "the disk is full");
}

TEST(ByteVocabulary, SpellsEveryTokenDifferently) {
  const Folder folder;
  write_model(small(Architecture::llama), folder / "model").value();
  const ReadFile file(read_bytes(folder / "model"));
  const std::vector<std::string>& tokens = file.string_arrays.at("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), kVocabulary);
  std::map<std::string, int> spelled;
  for (const std::string& token : tokens) EXPECT_EQ(spelled[token]++, 0) << token;
  EXPECT_EQ(tokens['a'], "a");
  EXPECT_EQ(tokens['\\'], "\\x5c");
  EXPECT_EQ(tokens[0], "\\x00");
  EXPECT_EQ(tokens[0xEF], "\\xef");
  EXPECT_EQ(tokens[kImEnd], "<|im_end|>");
  EXPECT_EQ(tokens[kFirstMention + kImEnd - kBos], "\\<|im_end|>");
  EXPECT_EQ(file.numbers.at("tokenizer.ggml.eot_token_id"), kImEnd);
}

}  // namespace
}  // namespace stemma::gguf
