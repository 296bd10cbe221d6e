#include "capi/tiers/store_request.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/invalid.h"
#include "capi/sized.h"
#include "tier/entry.h"

namespace stemma::capi {

STEMMA_SIZED(stemma_store_request, STEMMA_STORE_REQUEST_INIT);

namespace {

using base::invalid;

bool moves(store::Op op) noexcept { return op == store::Op::put || op == store::Op::get; }

// Fills in the item's value. Fails with invalid_argument.
Result<void> read_value(const stemma_store_request& c, const tier::object::Space& space,
                        store::Op op, store::Item& item) {
  const uint32_t i = item.number;
  item.value = c.values[i];
  if (item.value == nullptr) return invalid("this item's value is null", i);
  const uint64_t fixed = space.value_bytes();
  item.bytes = c.value_sizes != nullptr ? c.value_sizes[i] : c.value_size;
  if (item.bytes == 0 && c.value_sizes == nullptr) item.bytes = fixed;
  if (item.bytes == 0) return invalid("this item's value has 0 bytes", i);
  if (item.bytes > tier::object::kMostValueBytes) {
    return invalid("this item's value has more than 4 GiB", i);
  }
  if (fixed == 0) return {};
  if (op == store::Op::put && item.bytes != fixed) {
    return invalid("this item's value is not as large as its namespace's value_bytes say", i);
  }
  if (item.bytes < fixed) {
    return invalid("this item's value has less room than its namespace's value_bytes need", i);
  }
  return {};
}

// Fills in the item's hints, and its parent's place in the list. Fails with invalid_argument.
Result<void> read_hints(const stemma_store_request& c, store::Item& item, uint32_t& parent_at) {
  const uint32_t i = item.number;
  const uint32_t priority = c.priorities != nullptr ? c.priorities[i] : c.priority;
  if (priority > kMaxPriority) return invalid("priority of this item is more than 100", i);
  item.priority = static_cast<Priority>(priority);
  if (c.depths != nullptr) {
    if (c.depths[i] >= tier::kMostPositions)
      return invalid("depth of this item is 2^30 or more", i);
    item.depth = c.depths[i];
  }
  if (c.parents != nullptr) {
    if (c.parent_sizes[i] > tier::object::kMostKeyBytes) {
      return invalid("the key of this item's parent is longer than 64 bytes", i);
    }
    item.parent_size = c.parent_sizes[i];
    item.parent_at = parent_at;
    parent_at += item.parent_size;
  }
  return {};
}

Result<void> check(const stemma_store_request& c) {
  if (c.op > STEMMA_STORE_TOUCH) return invalid("op is no stemma_store_op", c.op);
  if (c.count == 0) return invalid("count is 0: a batch has at least one item");
  if (c.count > STEMMA_STORE_MOST_ITEMS) {
    return invalid("count is more than STEMMA_STORE_MOST_ITEMS", c.count);
  }
  if (moves(static_cast<store::Op>(c.op)) && c.values == nullptr) {
    return invalid("values is null, but this is a put or a get");
  }
  if (c.parents != nullptr && c.parent_sizes == nullptr) {
    return invalid("parent_sizes is null, but parents is not");
  }
  return {};
}

}  // namespace

Result<KeyList> read_keys(const uint8_t* keys, const uint8_t* sizes, uint32_t size,
                          uint32_t count) {
  constexpr uint32_t kMost = tier::object::kMostKeyBytes;
  if (keys == nullptr) return invalid("keys is null");
  if (count == 0) return invalid("count is 0: there is no key");
  if (count > STEMMA_STORE_MOST_ITEMS) {
    return invalid("count is more than STEMMA_STORE_MOST_ITEMS", count);
  }
  if (sizes == nullptr && (size == 0 || size > kMost)) {
    return invalid("key_size is not 1 to 64", size);
  }
  KeyList list;
  list.at.reserve(count + 1);
  uint32_t at = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t one = sizes != nullptr ? sizes[i] : size;
    if (one == 0 || one > kMost) return invalid("the size of this key is not 1 to 64", i);
    list.at.push_back(at);
    at += one;
  }
  list.at.push_back(at);
  return list;
}

Result<store::Request> read_request(const stemma_store_request* given, const store::Store& store) {
  if (given == nullptr) return invalid("request is null");
  STEMMA_TRY(const stemma_store_request c, read_sized(given));
  STEMMA_TRY_VOID(check(c));
  store::Request request;
  request.op = static_cast<store::Op>(c.op);
  STEMMA_TRY(request.space, store.space(c.name_space));
  STEMMA_TRY(const KeyList keys, read_keys(c.keys, c.key_sizes, c.key_size, c.count));
  request.timeout_ns = c.timeout_ns;
  request.user = c.user;
  request.results = c.results;
  request.items.resize(c.count);
  const uint32_t parents_from = keys.at.back();
  uint32_t parent_at = parents_from;
  for (uint32_t i = 0; i < c.count; ++i) {
    store::Item& item = request.items[i];
    item.number = i;
    item.key_at = keys.at[i];
    item.key_size = static_cast<uint8_t>(keys.size(i));
    if (moves(request.op)) STEMMA_TRY_VOID(read_value(c, *request.space, request.op, item));
    if (request.op == store::Op::put) STEMMA_TRY_VOID(read_hints(c, item, parent_at));
  }
  request.key_bytes.reserve(parent_at);
  request.key_bytes.assign(c.keys, c.keys + parents_from);
  if (parent_at != parents_from) {
    request.key_bytes.insert(request.key_bytes.end(), c.parents,
                             c.parents + (parent_at - parents_from));
  }
  // The first put of a batch is kept longest.
  if (request.op == store::Op::put && c.depths != nullptr) {
    std::stable_sort(request.items.begin(), request.items.end(),
                     [](const auto& a, const auto& b) { return a.depth < b.depth; });
  }
  if (c.results != nullptr) std::fill_n(c.results, c.count, stemma_store_result{});
  return request;
}

#define SAME(c, cpp) static_assert(static_cast<uint32_t>(c) == static_cast<uint32_t>(cpp))
SAME(STEMMA_STORE_PUT, store::Op::put);
SAME(STEMMA_STORE_GET, store::Op::get);
SAME(STEMMA_STORE_CONTAINS, store::Op::contains);
SAME(STEMMA_STORE_REMOVE, store::Op::remove);
SAME(STEMMA_STORE_TOUCH, store::Op::touch);
SAME(STEMMA_ITEM_PENDING, store::Status::pending);
SAME(STEMMA_ITEM_DONE, store::Status::done);
SAME(STEMMA_ITEM_ABSENT, store::Status::absent);
SAME(STEMMA_ITEM_BUSY, store::Status::busy);
SAME(STEMMA_ITEM_REFUSED, store::Status::refused);
SAME(STEMMA_ITEM_FAILED, store::Status::failed);
SAME(STEMMA_ITEM_LATE, store::Status::late);
SAME(STEMMA_ITEM_CANCELLED, store::Status::cancelled);
#undef SAME

}  // namespace stemma::capi
