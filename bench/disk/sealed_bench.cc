// Question: how much of a disk tier's speed is left when entries are sealed? Stores on one disk,
//           one sealed and two not,
// are measured in turns; beside them what AES-256-GCM does on one core.
#include "bench/disk/sealed_bench.h"

#include <cstdio>

#if defined(STEMMA_HAS_TIER_DISK) && defined(STEMMA_HAS_TIER_SEAL)

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "bench/disk/entries.h"
#include "bench/harness.h"
#include "bench/support.h"
#include "flags/flags.h"
#include "stemma/tier/disk_tier.h"
#include "stemma/tier/key_ring.h"
#include "stemma/tier/sealed_tier.h"
#include "tier/disk/page_memory.h"
#include "tier/seal/cipher.h"

namespace stemma::bench::disk {
namespace {

constexpr const char* kSealedHelp =
    R"(usage: stemma bench sealed [--dir DIR] [--bytes N] [--rounds N] [--threads N] [--staging N]
                           [--part N] [--json] [--strict]

Measures what it costs to seal the entries of a disk tier: puts and gets of 2 MiB and of 64 KiB,
over the same without sealing, in turns; seconds of CPU per GB; AES-256-GCM on one core.

  --dir DIR      where to make a directory of its own, which is removed afterwards (.)
  --bytes N      size of each of three stores (1073741824)
  --rounds N     turns; each puts and gets a quarter of a store (8)
  --threads N    threads that seal and open (2)
  --staging N    bytes for sealed entries on their way, for puts and for gets (134217728)
  --part N       bytes that go to the disk tier at a time (1048576)
  --json         rows for a program to read
  --strict       exit code 1 when a limit is missed
)";

struct SealedArguments {
  std::string dir = ".";
  uint64_t bytes = uint64_t{1} << 30U;
  uint64_t rounds = 8;
  uint64_t threads = tier::SealedTierOptions{}.threads;
  uint64_t staging = tier::SealedTierOptions{}.staging_bytes;
  uint64_t part = tier::SealedTierOptions{}.part_bytes;
  bool json = false, strict = false, help = false;
};

std::string parse(std::span<const std::string_view> words, SealedArguments& out) {
  flags::Flags flags;
  flags.text("--dir", out.dir);
  flags.whole("--bytes", out.bytes);
  flags.whole("--rounds", out.rounds);
  flags.whole("--threads", out.threads);
  flags.whole("--staging", out.staging);
  flags.whole("--part", out.part);
  flags.on("--json", out.json);
  flags.on("--strict", out.strict);
  const std::string wrong = flags.read(words);
  out.help = flags.help();
  return wrong;
}

using tier::disk::DiskOptions;
using tier::disk::DiskTier;
using tier::disk::PageMemory;

std::unique_ptr<Tier> open_store(const SealedArguments& arguments, const std::string& path,
                                 uint64_t size) {
  DiskOptions options;
  options.path = path;
  options.capacity_bytes = arguments.bytes;
  options.max_entry_bytes = (uint64_t{2} << 20U) + tier::kSealBytes;
  options.depth = under_way(size);
  return must(DiskTier::open(options), "the store cannot be opened");
}

// Sealing and opening in memory that stays in the cache of the core.
void measure_cipher(Sheet& sheet) {
  const auto cipher = tier::seal::Cipher::create();
  require(cipher != nullptr, "there is no AES-256-GCM");
  const std::string note = std::string("one core, by ") + cipher->library();
  const tier::seal::SealingKey key{1};
  const uint8_t associated[88] = {};
  for (const uint64_t size : {uint64_t{64} << 10U, uint64_t{2} << 20U}) {
    std::vector<uint8_t> plain(size, 5), sealed(size);
    tier::seal::Tag tag;
    Samples seal, open;
    for (int round = 0; round < 200; ++round) {
      seal.add(static_cast<double>(size) / time_ns([&] {
                 require(cipher->seal(key, {}, associated, plain, sealed.data(), tag), "sealing");
               }));
      open.add(static_cast<double>(size) / time_ns([&] {
                 require(cipher->open(key, {}, associated, sealed, tag, plain.data()), "opening");
               }));
    }
    const std::string name = size == uint64_t{64} << 10U ? "64k" : "2m";
    sheet.info("aes_256_gcm_seal_" + name, seal.median(), "GB/s").with_note(note);
    sheet.info("aes_256_gcm_open_" + name, open.median(), "GB/s").with_note(note);
  }
}

struct Store {
  std::unique_ptr<Tier> tier;
  uint64_t more_bytes = 0;  // More bytes per entry.
  uint64_t next = 1;

  std::vector<uint64_t> take(uint64_t count) {
    std::vector<uint64_t> numbers(count);
    for (uint64_t& number : numbers) number = next++;
    return numbers;
  }
};

using Move = void (*)(Tier&, TierOp, uint64_t, std::span<const uint64_t>, uint8_t*);

void run_rounds(Sheet& sheet, const SealedArguments& arguments, const std::string& prefix,
                Move move, uint64_t size, std::span<Store, 3> stores, const PageMemory& memory,
                bool limited) {
  Rng rng(7);
  const uint64_t some = std::max<uint64_t>(
      std::min(stores[0].tier->stats().entries, stores[2].tier->stats().entries) / 4, 16);
  const uint64_t bytes = some * size;
  for (const TierOp op : {TierOp::put, TierOp::get}) {
    PairedSamples speed;
    Samples cpu[3], larger;
    for (uint64_t round = 0; round < arguments.rounds; ++round) {
      for (size_t turn = 0; turn < 3; ++turn) {
        // Which one is first changes from turn to turn.
        const size_t which = (round + turn) % 3;
        Store& store = stores[which];
        std::vector<uint64_t> numbers;
        if (op == TierOp::put) {
          numbers = store.take(some);
        } else {
          for (uint64_t i = 0; i < some; ++i) numbers.push_back(store.next - 1 - i * 3 / 2);
          shuffle(std::span(numbers), rng);
        }
        const Speed ours = measure(
            bytes, [&] { move(*store.tier, op, size + store.more_bytes, numbers, memory.data()); });
        if (which == 0) speed.add_ours(ours.gb_per_s);
        if (which == 1) speed.add_other(ours.gb_per_s);
        if (which == 2) larger.add(ours.gb_per_s);
        cpu[which].add(ours.cpu_s_per_gb);
      }
      speed.end_phase();
    }
    const std::string name = prefix + (op == TierOp::put ? "_put" : "_get");
    const std::string note =
        format("%.2f GB/s sealed, %.2f unsealed; unsealed with 64 bytes more: %.2f", speed.ours(),
               speed.other(), larger.median());
    if (limited) {
      sheet.at_least(name + "_over_unsealed", speed.ratio(), "x", 0.9).with_note(note);
    } else {
      sheet.info(name + "_over_unsealed", speed.ratio(), "x").with_note(note);
    }
    sheet.info(name + "_cpu_s_per_gb", cpu[0].median(), "s/GB")
        .with_note(format("unsealed: %.3f", cpu[1].median()));
  }
}

void run_size(Sheet& sheet, const SealedArguments& arguments, const std::string& dir,
              const char* name, uint64_t size) {
  std::string why;
  auto keys = tier::KeyRing::open({.path = dir + "/keys"}, why);
  require(static_cast<bool>(keys), "the key directory cannot be opened");
  const tier::SealedTierOptions options{.keys = *keys,
                                        .threads = static_cast<uint32_t>(arguments.threads),
                                        .staging_bytes = arguments.staging,
                                        .part_bytes = arguments.part};
  // Outlives the stores, which may still use it after a wrong answer.
  const PageMemory memory(2 * under_way(size) * stride_of(size + tier::kSealBytes) +
                          (uint64_t{16} << 20U));
  // Huge pages, as the library's own memory has: without them the disk needs twice as long for all.
  (void)madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
  Store stores[3];
  stores[0].tier =
      must(tier::make_sealed_tier(open_store(arguments, dir + "/sealed-" + name, size), options),
           "sealing");
  stores[1].tier = open_store(arguments, dir + "/plain-" + name, size);
  // As large as a sealed entry: shows the cost of the additional page.
  stores[2].tier = open_store(arguments, dir + "/larger-" + name, size);
  stores[2].more_bytes = tier::kSealBytes;
  require(static_cast<bool>(memory), "no memory for buffers");
  Rng rng(7);
  for (uint64_t i = 0; i + 8 <= memory.size(); i += 8) {
    const uint64_t word = rng.next();
    std::memcpy(memory.data() + i, &word, 8);
  }
  // Full from the start, so that every put evicts and overwrites, as in long use.
  for (Store& store : stores) {
    while (store.tier->stats().evictions == 0) {
      move_entries(*store.tier, TierOp::put, size + store.more_bytes, store.take(64),
                   memory.data());
    }
  }
  const std::string prefix = std::string("sealed_") + name;
  run_rounds(sheet, arguments, prefix, move_entries, size, stores, memory, true);
  run_rounds(sheet, arguments, prefix + "_fresh", move_fresh_entries, size, stores, memory, false);
  run_rounds(sheet, arguments, prefix + "_one_batch", move_one_batch_at_a_time, size, stores,
             memory, false);
}

}  // namespace

int run_sealed_bench(std::span<const std::string_view> words) {
  SealedArguments arguments;
  const std::string problem = parse(words, arguments);
  if (!problem.empty()) {
    std::fprintf(stderr, "stemma bench sealed: %s\nTry 'stemma bench sealed --help'.\n",
                 problem.c_str());
    return 2;
  }
  if (arguments.help) {
    std::fputs(kSealedHelp, stdout);
    return 0;
  }
  std::string dir = arguments.dir + "/stemma-bench-XXXXXX";
  if (mkdtemp(dir.data()) == nullptr) {
    std::fprintf(stderr, "stemma bench sealed: no directory can be made in '%s'\n",
                 arguments.dir.c_str());
    return 2;
  }
  Sheet sheet(Settings{});
  int code = 0;
  try {
    measure_cipher(sheet);
    run_size(sheet, arguments, dir, "2m", uint64_t{2} << 20U);
    run_size(sheet, arguments, dir, "64k", uint64_t{64} << 10U);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stemma bench sealed: %s\n", error.what());
    code = 1;
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

namespace stemma::bench::disk {

int run_sealed_bench(std::span<const std::string_view>) {
  std::fputs(
      "stemma bench sealed: this program was built without the disk tier or without OpenSSL\n",
      stderr);
  return 2;
}

}  // namespace stemma::bench::disk

#endif
