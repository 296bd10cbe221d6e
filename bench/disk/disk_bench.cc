// Question: how much of what the disk can do is left when entries are checksummed, indexed, evicted
//           and
// found again? The limit is measured in the same run, in turns: the same sizes through the same I/O
// queue with O_DIRECT, on a file beside the store, without any of that.
#include "bench/disk/disk_bench.h"

#ifdef STEMMA_HAS_TIER_DISK

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "bench/disk/entries.h"
#include "bench/harness.h"
#include "bench/support.h"
#include "flags/flags.h"
#include "stemma/tier/disk_tier.h"
#include "tier/disk/local_files.h"
#include "tier/disk/page_memory.h"

namespace stemma::bench::disk {
namespace {

using namespace stemma::tier::disk;  // NOLINT(google-build-using-namespace): what is measured.
using tier::Files;
using tier::Io;
using tier::IoQueue;
using tier::OpenAs;

constexpr const char* kDiskHelp =
    R"(usage: stemma bench disk [--dir DIR] [--bytes N] [--rounds N] [--io WAY] [--json] [--strict]

Measures the disk tier on the file system of DIR beside what that can do: puts and gets of 2 MiB and of
64 KiB over O_DIRECT writes and reads of the same sizes, in turns; seconds of CPU per GB; how long a full
store takes to open.

  --dir DIR     where to make a directory of its own, which is removed afterwards (.)
  --bytes N     size of the store; twice as much is needed on disk (1073741824)
  --rounds N    turns; each puts and gets a quarter of the store (8)
  --io WAY      uring, threads or auto (auto)
  --json        rows for a program to read
  --strict      exit code 1 when a limit is missed
)";

struct DiskArguments {
  std::string dir = ".";
  uint64_t bytes = uint64_t{1} << 30U;
  uint32_t rounds = 8;
  IoWay way = IoWay::automatic;
  bool json = false, strict = false, help = false;
};

std::string parse(std::span<const std::string_view> words, DiskArguments& out) {
  flags::Flags flags;
  flags.text("--dir", out.dir);
  flags.whole("--bytes", out.bytes, uint64_t{256} << 20U);
  flags.whole("--rounds", out.rounds);
  flags.choice("--io", out.way,
               {{"uring", IoWay::uring}, {"threads", IoWay::threads}, {"auto", IoWay::automatic}});
  flags.on("--json", out.json);
  flags.on("--strict", out.strict);
  const std::string wrong = flags.read(words);
  out.help = flags.help();
  return wrong;
}

// The limit: the same sizes at the same places, and nothing else.
class RawFile {
 public:
  RawFile(const std::string& path, uint64_t bytes, IoWay way) : files_(make_local_files(way)) {
    file_ = files_->open(path, OpenAs::created_direct);
    require(file_ >= 0, "the file system has no O_DIRECT: there is no limit to measure");
    require(files_->allocate(file_, 0, bytes) >= 0, "no room for the baseline's file");
    queue_ = files_->queue(kDepth);
    require(queue_ != nullptr, "the I/O queue that was asked for is not there");
  }
  ~RawFile() {
    queue_.reset();
    files_->close(file_);
  }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  // Moves each of `slots` once, from and to `memory`, which has room for under_way(size).
  void move(Io::Kind kind, uint64_t size, std::span<const uint32_t> slots, uint8_t* memory) {
    const uint32_t most = under_way(size);
    std::vector<Io> ios(most);
    std::vector<Io*> free(most);
    for (uint32_t i = 0; i < most; ++i) {
      ios[i].kind = kind;
      ios[i].file = file_;
      ios[i].parts[0] = {memory + i * size, size};
      ios[i].part_count = 1;
      free[i] = &ios[i];
    }
    std::vector<Io*> ended(most);
    size_t next = 0;
    while (next < slots.size() || free.size() < most) {
      while (next < slots.size() && !free.empty()) {
        free.back()->offset = slots[next++] * size;
        queue_->start(*free.back());
        free.pop_back();
      }
      const size_t count = queue_->wait(ended, 1'000'000'000);
      for (size_t i = 0; i < count; ++i) {
        require(ended[i]->result == static_cast<int64_t>(size), "the baseline's I/O failed");
        free.push_back(ended[i]);
      }
    }
  }

 private:
  std::unique_ptr<Files> files_;
  std::unique_ptr<IoQueue> queue_;
  int file_ = -1;
};

struct Names {
  const char* size;
  uint64_t bytes;
  double limit;
};

// What a store had when it was closed.
struct Closed {
  uint64_t entries;
  uint64_t bytes;
  uint64_t index_bytes;
};

void report_reopening(Sheet& sheet, const std::string& prefix, const DiskOptions& options,
                      const Closed& closed) {
  const auto tier = must(DiskTier::open(options), "the store cannot be opened again");
  const DiskOpening& opening = tier->opening();
  require(opening.entries == closed.entries && opening.damaged == 0,
          "entries were lost by closing");
  sheet.info(prefix + "_reopen_ms", static_cast<double>(opening.ns) * 1e-6, "ms")
      .with_note(format("%llu entries, %.1f GB", static_cast<unsigned long long>(closed.entries),
                        static_cast<double>(closed.bytes) * 1e-9));
  sheet.info(prefix + "_index_bytes_per_entry",
             static_cast<double>(closed.index_bytes) / static_cast<double>(closed.entries),
             "bytes");
}

void report(Sheet& sheet, const std::string& row, double limit, const std::string& way,
            const PairedSamples& speed, const Samples& cpu, const Samples& cpu_raw) {
  sheet.at_least(row + "_over_raw", speed.ratio(), "x", limit)
      .with_note(format("%.2f GB/s over %.2f raw; %s", speed.ours(), speed.other(), way.c_str()));
  sheet.info(row + "_cpu_s_per_gb", cpu.median(), "s/GB")
      .with_note(format("raw: %.3f", cpu_raw.median()));
}

void fill_at_random(const PageMemory& memory, Rng& rng) {
  for (uint64_t i = 0; i + 8 <= memory.size(); i += 8) {
    const uint64_t word = rng.next();
    std::memcpy(memory.data() + i, &word, 8);
  }
}

void run_size(Sheet& sheet, const DiskArguments& arguments, const std::string& dir,
              const Names& names) {
  const uint64_t size = names.bytes;
  DiskOptions options;
  options.path = dir + "/store-" + names.size;
  options.capacity_bytes = arguments.bytes;
  options.max_entry_bytes = uint64_t{2} << 20U;
  options.depth = under_way(size);  // As the baseline.
  options.way = arguments.way;
  auto tier = must(DiskTier::open(options), "the store cannot be opened");
  const PageMemory memory(kDepth * (uint64_t{2} << 20U));
  require(static_cast<bool>(memory), "no memory for buffers");
  Rng rng(7);
  fill_at_random(memory, rng);

  // Full from the start, so that every put evicts and overwrites, as in long use.
  uint64_t next = 1;
  const auto take = [&](uint64_t count) {
    std::vector<uint64_t> numbers(count);
    for (uint64_t& number : numbers) number = next++;
    return numbers;
  };
  while (tier->stats().evictions == 0)
    move_entries(*tier, TierOp::put, size, take(64), memory.data());
  const uint64_t held = tier->stats().entries;
  RawFile raw(dir + "/raw-" + names.size, held * size, arguments.way);
  std::vector<uint32_t> slots(held);
  for (uint32_t i = 0; i < held; ++i) slots[i] = i;
  raw.move(Io::Kind::write, size, slots, memory.data());

  PairedSamples put;
  PairedSamples get;
  Samples put_cpu, put_cpu_raw, get_cpu, get_cpu_raw;
  const uint64_t some = std::max<uint64_t>(held / 4, 16);
  const uint64_t bytes = some * size;
  for (uint32_t round = 0; round < arguments.rounds; ++round) {
    shuffle(std::span(slots), rng);
    const auto part = std::span(slots).first(some);
    const auto raw_turn = [&](Io::Kind kind, PairedSamples& speed, Samples& cpu) {
      const Speed raw_speed = measure(bytes, [&] { raw.move(kind, size, part, memory.data()); });
      speed.add_other(raw_speed.gb_per_s);
      cpu.add(raw_speed.cpu_s_per_gb);
    };
    const auto tier_turn = [&](TierOp op, PairedSamples& speed, Samples& cpu) {
      // Reads only entries of the last two rounds, which are there whatever else was used.
      std::vector<uint64_t> numbers;
      if (op == TierOp::put) {
        numbers = take(some);
      } else {
        for (const uint32_t slot : part) numbers.push_back(next - 1 - slot * uint64_t{3} / 8);
        shuffle(std::span(numbers), rng);
      }
      const Speed ours =
          measure(bytes, [&] { move_entries(*tier, op, size, numbers, memory.data()); });
      speed.add_ours(ours.gb_per_s);
      cpu.add(ours.cpu_s_per_gb);
    };
    // Which one is first changes from turn to turn.
    const bool raw_first = round % 2 == 0;
    if (raw_first) raw_turn(Io::Kind::write, put, put_cpu_raw);
    tier_turn(TierOp::put, put, put_cpu);
    if (!raw_first) raw_turn(Io::Kind::write, put, put_cpu_raw);
    put.end_phase();
    if (raw_first) raw_turn(Io::Kind::read, get, get_cpu_raw);
    tier_turn(TierOp::get, get, get_cpu);
    if (!raw_first) raw_turn(Io::Kind::read, get, get_cpu_raw);
    get.end_phase();
  }

  const std::string prefix = std::string("disk_") + names.size;
  const std::string way = tier->opening().io + (tier->opening().direct ? ", O_DIRECT" : "");
  report(sheet, prefix + "_put", names.limit, way, put, put_cpu, put_cpu_raw);
  report(sheet, prefix + "_get", names.limit, way, get, get_cpu, get_cpu_raw);

  const uint64_t index_bytes = tier->index_bytes();
  tier.reset();
  report_reopening(sheet, prefix, options, {held, held * size, index_bytes});
}

}  // namespace

int run_disk_bench(std::span<const std::string_view> words) {
  DiskArguments arguments;
  const std::string problem = parse(words, arguments);
  if (!problem.empty()) {
    std::fprintf(stderr, "stemma bench disk: %s\nTry 'stemma bench disk --help'.\n",
                 problem.c_str());
    return 2;
  }
  if (arguments.help) {
    std::fputs(kDiskHelp, stdout);
    return 0;
  }
  std::string dir = arguments.dir + "/stemma-bench-XXXXXX";
  if (mkdtemp(dir.data()) == nullptr) {
    std::fprintf(stderr, "stemma bench disk: no directory can be made in '%s'\n",
                 arguments.dir.c_str());
    return 2;
  }
  Sheet sheet(Settings{});
  int code = 0;
  for (const Names& names : {Names{"2m", uint64_t{2} << 20U, 0.9}, Names{"64k", 64U << 10U, 0.7}}) {
    std::fprintf(stderr, "entries of %s\n", names.size);
    try {
      run_size(sheet, arguments, dir, names);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "stemma bench disk: %s\n", error.what());
      code = 1;
    }
    std::error_code ignored;
    std::filesystem::remove_all(dir + "/store-" + names.size, ignored);
    std::filesystem::remove(dir + "/raw-" + names.size, ignored);
  }
  std::error_code ignored;
  std::filesystem::remove_all(dir, ignored);
  if (arguments.json) {
    print_json(sheet.rows());
  } else {
    std::printf("%s\n\n", describe_machine().c_str());
    print_table(sheet.rows());
  }
  const auto passes = [](const Row& row) { return row.passes(); };
  if (arguments.strict && !std::all_of(sheet.rows().begin(), sheet.rows().end(), passes)) code = 1;
  return code;
}

}  // namespace stemma::bench::disk

#else

#include <cstdio>

namespace stemma::bench::disk {

int run_disk_bench(std::span<const std::string_view>) {
  std::fputs("stemma bench disk: this program was built without the disk tier\n", stderr);
  return 2;
}

}  // namespace stemma::bench::disk

#endif
