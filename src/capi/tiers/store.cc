// stemma_store_*: the calls, a few lines each. store_request.cc checks the requests.
#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/invalid.h"
#include "capi/tiers/store_handles.h"
#include "capi/tiers/store_request.h"
#include "tier/object/envelope.h"

using namespace stemma;
using namespace stemma::capi;

namespace stemma::capi {

STEMMA_SIZED(stemma_store_options, STEMMA_STORE_OPTIONS_INIT);
STEMMA_SIZED(stemma_store_layout, STEMMA_STORE_LAYOUT_INIT);

namespace {

constinit Places<stemma_store, StoreHome> store_places;

using base::invalid;
// Counts the calls that look at a handle's home.
class Visitor {
 public:
  explicit Visitor(stemma_store& handle) noexcept : handle_(handle) {
    handle_.visitors.fetch_add(1, std::memory_order_seq_cst);
  }
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;
  ~Visitor() { handle_.visitors.fetch_sub(1, std::memory_order_release); }

 private:
  stemma_store& handle_;
};

Result<store::Options> read_options(const stemma_store_options* given) {
  STEMMA_TRY(const stemma_store_options c, read_sized(given));
  if (c.reserved != 0) return invalid("options.reserved is not 0", c.reserved);
  return store::Options{.load_threads = c.load_threads,
                        .store_threads = c.store_threads,
                        .most_batches = c.most_batches,
                        .most_items = c.most_items,
                        .put_bytes = c.put_bytes,
                        .timeout_ns = c.timeout_ns};
}

}  // namespace

Places<stemma_store, StoreHome>& stores() noexcept { return store_places; }

Result<std::shared_ptr<store::Store>> visit(stemma_store* handle) noexcept {
  const Result<StoreHome*> found = stores().find(handle);
  if (!found) return found.error();
  if (handle->process.load(std::memory_order_relaxed) != getpid()) return other_process();
  const Visitor visitor(*handle);
  // Destroying the store clears `home` first, and then waits for visitors.
  const StoreHome* const home = handle->home.load(std::memory_order_seq_cst);
  if (home == nullptr) return stores().stale();
  return home->store;
}

}  // namespace stemma::capi

stemma_status stemma_store_create(stemma_stack* stack, const stemma_store_options* options,
                                  stemma_store** out) {
  return with(__func__, stacks(), stack, [&](StackHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    if (home.process != getpid()) return other_process();
    STEMMA_TRY(const store::Options given, read_options(options));
    auto keep = std::make_shared<const StackUse>(home);
    auto made = std::make_unique<StoreHome>();
    STEMMA_TRY(made->store, store::Store::create(*home.stack, std::move(keep), given));
    STEMMA_TRY(stemma_store* const handle, place(stores(), std::move(made)));
    handle->process.store(getpid(), std::memory_order_relaxed);
    *out = handle;
    return {};
  });
}

stemma_status stemma_store_destroy(stemma_store* handle, uint64_t wait_ns) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    StoreHome* const home = handle->home.load(std::memory_order_seq_cst);
    if (home == nullptr || !stores().forget(handle, home)) return stores().stale();
    // A visit takes a few instructions and never waits.
    while (handle->visitors.load(std::memory_order_seq_cst) != 0) sched_yield();
    store.close(in(wait_ns));
    delete home;
    return {};
  });
}

stemma_status stemma_store_namespace(stemma_store* handle, const char* name,
                                     const stemma_store_layout* layout, uint32_t* out) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    if (name == nullptr) return invalid("name is null");
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY(const stemma_store_layout c, read_sized(layout));
    if (c.reserved != 0) return invalid("layout.reserved is not 0", c.reserved);
    STEMMA_TRY(*out, store.name_space(name, c.layout, c.value_bytes));
    return {};
  });
}

stemma_status stemma_store_submit(stemma_store* handle, const stemma_store_request* request,
                                  stemma_batch* out) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY(store::Request read, read_request(request, store));
    STEMMA_TRY(*out, store.submit(std::move(read)));
    return {};
  });
}

stemma_status stemma_store_event_fd(stemma_store* handle, int32_t* out) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    *out = store.ledger().event_fd();
    return {};
  });
}

stemma_status stemma_store_drain(stemma_store* handle, stemma_store_finished* out, size_t capacity,
                                 size_t* count) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    if (count == nullptr) return invalid("count is null");
    if (out == nullptr && capacity != 0) return invalid("out is null, but capacity is not 0");
    *count = capacity == 0 ? 0 : store.ledger().drain({out, capacity});
    return {};
  });
}

stemma_status stemma_store_wait(stemma_store* handle, stemma_batch batch, uint64_t wait_ns,
                                uint32_t* over, stemma_store_finished* out) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    if (over == nullptr) return invalid("over is null");
    STEMMA_TRY(const bool ended, store.ledger().wait(batch, in(wait_ns), out));
    *over = ended ? 1 : 0;
    return {};
  });
}

stemma_status stemma_store_cancel(stemma_store* handle, stemma_batch batch,
                                  stemma_store_finished* out) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    return store.ledger().cancel(batch, out);
  });
}

stemma_status stemma_store_lookup(stemma_store* handle, uint32_t name_space, const uint8_t* keys,
                                  const uint8_t* key_sizes, uint32_t key_size, uint32_t count,
                                  uint8_t* levels, uint32_t* leading) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    if (levels == nullptr && leading == nullptr) return invalid("levels and leading are null");
    STEMMA_TRY(const auto space, store.space(name_space));
    STEMMA_TRY(const KeyList list, read_keys(keys, key_sizes, key_size, count));
    std::vector<std::span<const uint8_t>> each;
    each.reserve(count);
    for (uint32_t i = 0; i < count; ++i) each.emplace_back(keys + list.at[i], list.size(i));
    std::vector<tier::LevelMask> masks(count);
    store.lookup(*space, each, levels == nullptr, masks);
    if (levels != nullptr) std::copy(masks.begin(), masks.end(), levels);
    if (leading != nullptr) {
      const auto end = std::find(masks.begin(), masks.end(), tier::LevelMask{0});
      *leading = static_cast<uint32_t>(end - masks.begin());
    }
    return {};
  });
}

stemma_status stemma_store_forget(stemma_store* handle, uint32_t name_space, uint32_t all_layouts,
                                  uint64_t wait_ns, stemma_level_purged* levels, size_t level_count,
                                  uint32_t* complete) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    if (all_layouts > 1) return invalid("all_layouts is neither 0 nor 1", all_layouts);
    Forgetting forgetting;  // Checks the place for the results.
    STEMMA_TRY_VOID(forgetting.read(nullptr, nullptr, levels, level_count, complete));
    STEMMA_TRY(const auto space, store.space(name_space));
    tell(store.forget(*space, all_layouts != 0, in(wait_ns)), levels, level_count, complete);
    return {};
  });
}

stemma_status stemma_store_flush(stemma_store* handle, uint64_t wait_ns, uint32_t* done) {
  return with_store(__func__, handle, [&](store::Store& store) -> Result<void> {
    const bool all = store.flush(in(wait_ns));
    if (done != nullptr) *done = all ? 1 : 0;
    return {};
  });
}

static_assert(STEMMA_STORE_MOST_KEY_BYTES == tier::object::kMostKeyBytes);
static_assert(STEMMA_STORE_MOST_NAME_BYTES == tier::object::kMostNameBytes);
static_assert(STEMMA_STORE_ENVELOPE_BYTES == tier::object::kEnvelopeBytes);
