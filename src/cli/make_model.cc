#ifdef STEMMA_HAS_GGUF

#include "cli/make_model.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "engine/gguf/make_model.h"
#include "flags/flags.h"

namespace stemma::cli {
namespace {

using gguf::Architecture;

constexpr const char* kMakeModelHelp =
    R"(usage: stemma make-model --arch ARCH --out FILE [OPTIONS]

Writes a small language model with random weights, as a GGUF file that llama.cpp loads: for tests,
measurements and demonstrations without a download. The model has learned nothing, but its answers
depend on the whole prompt, look like words, and are the same on every machine. Every byte is a token.

  --arch ARCH     what its layers remember:
                    llama      all positions (llama.cpp: llama)
                    window     every other layer only the last ones (gemma3)
                    recurrent  a state of fixed size (mamba)
                    hybrid     states and all positions in turn (jamba)
  --out FILE      the file to write; after a failure there is no incomplete file
  --force         replaces FILE if it exists. Do not use it while a program has FILE loaded

  --layers N      layers (4)
  --dim N         width, a multiple of 16 and of --heads (256)
  --heads N       attention heads; dim / heads is even (4)
  --kv-heads N    heads that have keys and values of their own; divides --heads (2)
  --ff N          width of the feed-forward part (twice --dim)
  --context N     positions that the file says it was trained with (8192)
  --window N      positions in the window, for --arch window (256)
  --type T        f32 or f16: how weights are stored (f32)
  --seed N        another number gives other weights (1)

  stemma make-model --arch llama --out tiny.gguf
  stemma make-model --arch window --window 128 --out window.gguf
  stemma make-model --arch llama --layers 12 --dim 768 --heads 12 --kv-heads 4 --type f16 --out bench.gguf

Exit codes: 0 written, 1 not, 2 bad arguments.
)";

struct MakeModelArguments {
  gguf::ModelShape shape;
  bool has_arch = false;
  std::string out;
  bool force = false;
  bool help = false;
};

bool parse_arch(std::string_view text, Architecture& out) {
  for (const auto arch :
       {Architecture::llama, Architecture::window, Architecture::recurrent, Architecture::hybrid}) {
    if (text == gguf::to_string(arch)) {
      out = arch;
      return true;
    }
  }
  return false;
}

// Returns an empty string, or an error message.
std::string parse(std::span<const std::string_view> words, MakeModelArguments& out) {
  gguf::ModelShape& shape = out.shape;
  flags::Flags flags;
  const std::pair<std::string_view, uint32_t*> numbers[] = {
      {"--layers", &shape.layers},     {"--dim", &shape.dim}, {"--heads", &shape.heads},
      {"--kv-heads", &shape.kv_heads}, {"--ff", &shape.ff},   {"--context", &shape.context},
      {"--window", &shape.window},
  };
  for (const auto& [name, number] : numbers) flags.whole(name, *number, 0U);
  flags.whole("--seed", shape.seed, decltype(shape.seed){0});
  flags.take("--arch", [&](std::string_view value) {
    out.has_arch = parse_arch(value, shape.architecture);
    return std::string(out.has_arch ? "" : "--arch is llama, window, recurrent or hybrid");
  });
  flags.choice("--type", shape.type,
               {{"f32", gguf::TensorType::f32}, {"f16", gguf::TensorType::f16}});
  flags.text("--out", out.out);
  flags.on("--force", out.force);
  if (std::string wrong = flags.read(words); !wrong.empty()) return wrong;
  out.help = flags.help();
  if (out.help) return {};
  if (!out.has_arch) return "--arch is missing: llama, window, recurrent or hybrid";
  if (out.out.empty()) return "--out is missing: the file to write";
  return {};
}

// "2.6 MB"
std::string megabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

void print_done(const MakeModelArguments& arguments, const gguf::ModelSize& size) {
  const auto u = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  const gguf::ModelShape& shape = arguments.shape;
  std::printf("%s: %s, %u layers of %u, %s, seed %llu\n", arguments.out.c_str(),
              gguf::to_string(shape.architecture), shape.layers, shape.dim,
              shape.type == gguf::TensorType::f32 ? "f32" : "f16", u(shape.seed));
  std::printf("  %llu parameters, %llu bytes (%s)\n", u(size.parameters), u(size.file_bytes),
              megabytes(size.file_bytes).c_str());
  if (size.kv_bytes_per_token != 0) {
    std::printf("  KV: %llu bytes per token in f16\n", u(size.kv_bytes_per_token));
  }
  if (size.window_bytes_per_token != 0) {
    std::printf("  KV of the last %u tokens: another %llu bytes each\n", shape.window,
                u(size.window_bytes_per_token));
  }
  if (size.state_bytes != 0) {
    std::printf("  state: %llu bytes per sequence\n", u(size.state_bytes));
  }
}

}  // namespace

int run_make_model(std::span<const std::string_view> words) {
  MakeModelArguments arguments;
  std::string problem = parse(words, arguments);
  if (arguments.help) {
    std::fputs(kMakeModelHelp, stdout);
    return 0;
  }
  if (problem.empty()) {
    if (const auto checked = gguf::check_shape(arguments.shape); !checked) {
      problem = std::string(checked.error().message()) + ", not " +
                std::to_string(checked.error().value());
    }
  }
  if (!problem.empty()) {
    std::fprintf(stderr, "stemma make-model: %s (see 'stemma make-model --help')\n",
                 problem.c_str());
    return 2;
  }

  const bool watched = isatty(STDERR_FILENO) == 1;
  const auto progress = [&](uint64_t done, uint64_t total) {
    if (!watched) return;
    std::fprintf(stderr, "\r\033[K  %s of %s", megabytes(done).c_str(), megabytes(total).c_str());
    if (done == total) std::fputs("\r\033[K", stderr);
  };
  const auto written = gguf::write_model(
      arguments.shape, arguments.out,
      arguments.force ? gguf::OnExisting::replace : gguf::OnExisting::refuse, progress);
  if (!written) {
    if (watched) std::fputs("\r\033[K", stderr);
    std::fprintf(stderr, "stemma make-model: cannot write '%s': %s%s\n", arguments.out.c_str(),
                 written.error().message(),
                 written.error().code() == Errc::wrong_state ? " (--force replaces it)" : "");
    return 1;
  }
  print_done(arguments, *written);
  return 0;
}

}  // namespace stemma::cli

#endif  // STEMMA_HAS_GGUF
