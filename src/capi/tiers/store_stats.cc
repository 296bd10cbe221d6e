// A store's counters, as a struct that may grow and as JSON.
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "capi/tiers/store_handles.h"
#include "json/write.h"

using namespace stemma;
using namespace stemma::capi;

namespace stemma::capi {

STEMMA_SIZED(stemma_store_stats, {});

namespace {

using store::Op;
using store::Status;

uint64_t of(const store::Counts& counts, Op op, Status status) noexcept {
  return counts.items[static_cast<size_t>(op)][static_cast<size_t>(status)];
}
uint64_t of(const store::Counts& counts, Status status) noexcept {
  uint64_t all = 0;
  for (const auto& op : counts.items) all += op[static_cast<size_t>(status)];
  return all;
}

stemma_store_stats read(const store::Stats& stats) noexcept {
  const store::Counts& counts = stats.counts;
  stemma_store_stats c{};
  c.namespaces = static_cast<uint32_t>(stats.spaces.size());
  c.batches = counts.batches;
  c.batches_waiting = counts.batches_waiting;
  c.items_waiting = counts.items_waiting;
  c.batches_ended = counts.batches_ended;
  c.puts = of(counts, Op::put, Status::done);
  c.put_bytes = counts.bytes[static_cast<size_t>(Op::put)];
  c.gets = of(counts, Op::get, Status::done);
  c.get_bytes = counts.bytes[static_cast<size_t>(Op::get)];
  c.found = of(counts, Op::contains, Status::done);
  c.removed = of(counts, Op::remove, Status::done);
  c.touched = of(counts, Op::touch, Status::done);
  c.absent = of(counts, Status::absent);
  c.busy = of(counts, Status::busy);
  c.refused = of(counts, Status::refused);
  c.failed = of(counts, Status::failed);
  c.late = of(counts, Status::late);
  c.cancelled = of(counts, Status::cancelled);
  c.mismatched = stats.mismatched;
  c.lookups = stats.lookups;
  c.lookup_found = stats.lookup_found;
  return c;
}

void write_levels(std::string& out, store::Store& store) {
  const tier::StackStats stack = store.stack_stats();
  out += '[';
  for (size_t l = 0; l < stack.levels.size(); ++l) {
    const tier::LevelStats& level = stack.levels[l];
    if (l != 0) out += ',';
    JsonObject object(out);
    object.add("name", level.name);
    object.add("open", uint64_t{level.tier.reachable});
    object.add("entries", level.tier.entries);
    object.add("used_bytes", level.tier.used_bytes);
    object.add("capacity_bytes", store.stack().tier(l).traits().capacity_bytes);
    object.add("hits", level.hits);
    object.add("hit_bytes", level.hit_bytes);
    object.add("misses", level.misses);
    object.add("stored", level.stored);
    object.add("promoted", level.promoted);
    object.add("dropped", level.dropped);
    object.add("lost", level.lost + level.too_large);
    object.add("puts", level.tier.puts);
    object.add("put_bytes", level.tier.put_bytes);
    object.add("corrupt", level.tier.corrupt);
    object.add("failed", level.tier.failed);
    object.add("evictions", level.tier.evictions);
    object.add("latency_ns", level.latency_ns);
    object.add("bytes_per_second", level.bytes_per_second);
  }
  out += ']';
}

std::string to_json(store::Store& store) {
  const store::Stats stats = store.stats();
  const stemma_store_stats c = read(stats);
  std::string out;
  {
    JsonObject object(out);
    object.add("batches", c.batches);
    object.add("batches_waiting", c.batches_waiting);
    object.add("items_waiting", c.items_waiting);
    object.add("batches_ended", c.batches_ended);
    object.add("puts", c.puts);
    object.add("put_bytes", c.put_bytes);
    object.add("gets", c.gets);
    object.add("get_bytes", c.get_bytes);
    object.add("found", c.found);
    object.add("removed", c.removed);
    object.add("touched", c.touched);
    object.add("absent", c.absent);
    object.add("busy", c.busy);
    object.add("refused", c.refused);
    object.add("failed", c.failed);
    object.add("late", c.late);
    object.add("cancelled", c.cancelled);
    object.add("mismatched", c.mismatched);
    object.add("lookups", c.lookups);
    object.add("lookup_found", c.lookup_found);
    write_levels(object.name("levels"), store);
    std::string& list = object.name("namespaces") += '[';
    for (const auto& space : stats.spaces) {
      if (&space != stats.spaces.data()) list += ',';
      JsonObject one(list);
      one.add("name", space->name());
      char layout[20];
      std::snprintf(layout, sizeof layout, "%016llx",
                    static_cast<unsigned long long>(space->layout()));
      one.add("layout", std::string_view(layout));
      one.add("value_bytes", space->value_bytes());
    }
    list += ']';
  }
  return out;
}

}  // namespace
}  // namespace stemma::capi

stemma_status stemma_store_stats_read(stemma_store* handle, stemma_store_stats* out) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    if (out == nullptr) return Error(Errc::invalid_argument, "out is null");
    STEMMA_TRY_VOID(check_room(*out));
    write_sized(out, read(store.stats()));
    return {};
  });
}

stemma_status stemma_store_stats_json(stemma_store* handle, char* out, size_t capacity,
                                      size_t* count) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    if (count == nullptr) return Error(Errc::invalid_argument, "count is null");
    if (out == nullptr && capacity != 0) {
      return Error(Errc::invalid_argument, "out is null, but capacity is not 0");
    }
    const std::string text = to_json(store);
    *count = text.size();
    if (capacity == 0) return {};
    if (capacity < text.size()) {
      return Error(Errc::out_of_range, "capacity is less than the text's size",
                   static_cast<uint32_t>(text.size()));
    }
    std::memcpy(out, text.data(), text.size());
    return {};
  });
}
