#include "engine/gguf/gguf_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>

#include "engine/gguf/half.h"
#include "engine/gguf/test_reader.h"

namespace stemma::gguf {
namespace {

GgufHeader example() {
  GgufHeader header;
  header.set_string("general.architecture", "none");
  header.set_u32("a.count", 7);
  header.set_f32("a.share", 0.25F);
  header.set_bool("a.yes", true);
  header.set_bool("a.no", false);
  header.set_u32s("a.counts", std::vector<uint32_t>{1, 4'000'000'000U});
  header.set_i32s("a.signed", std::vector<int32_t>{-1, 2});
  header.set_strings("a.words",
                     std::vector<std::string>{"", "two words", std::string("\0\xFF", 2)});
  header.add_tensor({"wide", TensorType::f32, {3, 2}});
  header.add_tensor({"half", TensorType::f16, {5}});
  return header;
}

constexpr float kWide[] = {1, 2, 3, -4, 0.5F, 1e-20F};
constexpr float kHalf[] = {1, -2, 0.333F, 65504, 1e-7F};

Result<void> write_example(GgufWriter& writer) {
  STEMMA_TRY_VOID(writer.write(std::span(kWide).first(2)));
  STEMMA_TRY_VOID(writer.write(std::span(kWide).subspan(2)));
  STEMMA_TRY_VOID(writer.write(kHalf));
  return {};
}

TEST(GgufWriter, WritesWhatAnIndependentReaderFinds) {
  const Folder folder;
  const std::string path = folder / "example.gguf";
  const GgufHeader header = example();
  GgufWriter writer = GgufWriter::create(path, header, OnExisting::refuse).value();
  write_example(writer).value();
  EXPECT_FALSE(std::filesystem::exists(path)) << "a name before its bytes";
  writer.finish().value();

  const ReadFile file(read_bytes(path));
  EXPECT_EQ(file.bytes, header.file_bytes());
  EXPECT_EQ(file.strings.at("general.architecture"), "none");
  EXPECT_EQ(file.numbers.at("a.count"), 7);
  EXPECT_EQ(file.numbers.at("a.share"), 0.25);
  EXPECT_EQ(file.numbers.at("a.yes"), 1);
  EXPECT_EQ(file.numbers.at("a.no"), 0);
  EXPECT_EQ(file.arrays.at("a.counts"), (std::vector<double>{1, 4e9}));
  EXPECT_EQ(file.arrays.at("a.signed"), (std::vector<double>{-1, 2}));
  EXPECT_EQ(file.string_arrays.at("a.words"),
            (std::vector<std::string>{"", "two words", std::string("\0\xFF", 2)}));
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors.at("wide").dims, (std::vector<uint64_t>{3, 2}));
  EXPECT_EQ(file.tensors.at("wide").offset, 0U);
  EXPECT_EQ(file.tensors.at("half").offset, 32U);
  for (size_t i = 0; i < std::size(kWide); ++i) {
    EXPECT_EQ(file.tensors.at("wide").values[i], kWide[i]);
  }
  const std::vector<float>& half = file.tensors.at("half").values;
  EXPECT_EQ(half[0], 1);
  EXPECT_EQ(half[1], -2);
  EXPECT_NEAR(half[2], 0.333F, 1e-4);
  EXPECT_EQ(half[3], 65504);
  EXPECT_NEAR(half[4], 1e-7, 3e-8);
}

TEST(GgufWriter, KeepsWhatIsThereUnlessToldOtherwise) {
  const Folder folder;
  const std::string path = folder / "example.gguf";
  write_bytes(path, "precious");
  const auto refused = GgufWriter::create(path, example(), OnExisting::refuse);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::wrong_state);
  {
    GgufWriter given_up = GgufWriter::create(path, example(), OnExisting::replace).value();
    EXPECT_EQ(folder.files(), 2U);
  }
  EXPECT_EQ(read_bytes(path), "precious");
  EXPECT_EQ(folder.files(), 1U) << "a part of a file was left";

  GgufWriter writer = GgufWriter::create(path, example(), OnExisting::replace).value();
  write_example(writer).value();
  writer.finish().value();
  EXPECT_EQ(read_bytes(path).substr(0, 4), "GGUF");
  EXPECT_EQ(folder.files(), 1U);
}

TEST(GgufWriter, NeverReplacesAFileThatAppearedMeanwhile) {
  const Folder folder;
  const std::string path = folder / "example.gguf";
  GgufWriter writer = GgufWriter::create(path, example(), OnExisting::refuse).value();
  write_example(writer).value();
  write_bytes(path, "precious");
  const auto finished = writer.finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code(), Errc::wrong_state);
  EXPECT_EQ(read_bytes(path), "precious");
}

TEST(GgufWriter, RefusesTooManyNumbersAndTooFew) {
  const Folder folder;
  const std::string path = folder / "example.gguf";
  {
    GgufWriter writer = GgufWriter::create(path, example(), OnExisting::refuse).value();
    const std::vector<float> seven(7);
    EXPECT_EQ(writer.write(seven).error().code(), Errc::invalid_argument);
    writer.write(kWide).value();
    EXPECT_EQ(writer.finish().error().code(), Errc::wrong_state);
  }
  EXPECT_EQ(folder.files(), 0U);
}

TEST(GgufWriter, SaysThatTheDiskIsFull) {
  GgufWriter writer = GgufWriter::create("/dev/full", example(), OnExisting::replace).value();
  write_example(writer).value();  // Still in the buffer.
  const auto finished = writer.finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code(), Errc::copy_failed);
  EXPECT_STREQ(finished.error().message(), "the disk is full");
  EXPECT_EQ(finished.error().value(), static_cast<uint32_t>(ENOSPC));
}

TEST(GgufWriter, SaysThatThereIsNoSuchFolder) {
  const Folder folder;
  const auto created =
      GgufWriter::create(folder / "none" + "/x.gguf", example(), OnExisting::refuse);
  ASSERT_FALSE(created);
  EXPECT_STREQ(created.error().message(), "there is no such folder");
  const auto over_folder = GgufWriter::create(folder / ".", example(), OnExisting::replace);
  ASSERT_FALSE(over_folder);
  EXPECT_STREQ(over_folder.error().message(), "that is a folder");
}

TEST(GgufWriter, LeavesNothingOfAFileThatGrewTooLarge) {
  const Folder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 256, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Result<void> finished;
  {
    GgufWriter writer =
        GgufWriter::create(folder / "example.gguf", example(), OnExisting::refuse).value();
    write_example(writer).value();
    finished = writer.finish();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().value(), static_cast<uint32_t>(EFBIG));
  EXPECT_EQ(folder.files(), 0U);
}

TEST(Half, IsTheNearestOne) {
  // Every half rounds to itself, and a number between two halves to the nearer one, or to the even
  // one on a tie.
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float here = from_half(half);
    ASSERT_EQ(to_half(here), half);
    ASSERT_EQ(to_half(-here), half | 0x8000);
    if (bits + 1 == 0x7C00) break;
    const float next = from_half(static_cast<uint16_t>(bits + 1));
    const float middle = here + (next - here) / 2;
    ASSERT_EQ(to_half(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(to_half(std::nextafter(middle, 0.0F)), bits);
    ASSERT_EQ(to_half(std::nextafter(middle, 1e9F)), bits + 1);
  }
  EXPECT_EQ(to_half(65519.0F), 0x7BFF);
  EXPECT_EQ(to_half(65520.0F), 0x7C00);
  EXPECT_EQ(to_half(INFINITY), 0x7C00);
  EXPECT_EQ(to_half(-INFINITY), 0xFC00);
  EXPECT_EQ(to_half(NAN) & 0x7C00, 0x7C00);
  EXPECT_NE(to_half(NAN) & 0x03FF, 0);
}

}  // namespace
}  // namespace stemma::gguf
