#include "mover/fake_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <set>
#include <vector>

#include "base/random.h"
#include "mover/cuda/kernel_body.h"

namespace stemma::test {

using namespace mover;
using namespace mover::cuda;

namespace {

constexpr int kIllegalAddress = 700;

// One recording of an event.
struct Recording {
  bool happened = false;
};

struct FakeEvent {
  std::shared_ptr<Recording> last;
};

struct Kernel {
  Piece* pieces;
  std::vector<uint32_t> left;  // In the order in which they will be done.
  const Shape* shapes;
  Way way;
  bool sum;
};

struct Batch {
  std::vector<Address> targets, sources;
  std::vector<size_t> sizes;
};

struct Op {
  std::shared_ptr<Recording> record, wait;
  std::unique_ptr<Kernel> kernel;
  std::unique_ptr<Batch> batch;
  std::function<void()> work;
};

struct FakeStream {
  std::deque<Op> ops;
  bool captures = false;
};

}  // namespace

struct FakeDevice::State {
  mutable std::recursive_mutex mutex;
  uint64_t random = 0;
  std::set<FakeStream*> streams;
  std::set<FakeEvent*> events;
  FakeStream default_stream;
  std::map<Address, uint64_t> device_memory, pinned;
  int contexts = 0, modules = 0;
  static inline thread_local int pushed = 0;
  uint64_t pieces_until_broken = UINT64_MAX;
  int break_with = 0, broken = 0;
  struct Refusal {
    int status;
    uint32_t times, after;
  };
  std::map<std::string, Refusal> refusals;
  uint64_t ended_captures = 0;

  uint64_t below(uint64_t limit) { return base::next_random(random) % limit; }

  static bool in(const std::map<Address, uint64_t>& ranges, Address at, uint64_t bytes) {
    auto range = ranges.upper_bound(at);
    if (range == ranges.begin()) return false;
    --range;
    return at + bytes <= range->first + range->second;
  }
  bool reachable(Address at, uint64_t bytes) const {
    return in(device_memory, at, bytes) || in(pinned, at, bytes);
  }

  int refused(const char* function) {
    if (broken != 0) return broken;
    const auto found = refusals.find(function);
    if (found == refusals.end() || found->second.times == 0) return 0;
    if (found->second.after != 0) {
      --found->second.after;
      return 0;
    }
    --found->second.times;
    if (found->second.status == kThrows) throw std::bad_alloc();
    return found->second.status;
  }

  bool touches_only_ours(const Piece& piece, const Shape& shape, Way way) const {
    uint64_t reach = shape.run_bytes;
    for (uint32_t d = 0; d < shape.dims; ++d) reach += (shape.size[d] - 1) * shape.stride[d];
    if (!in(device_memory, piece.page, reach)) return false;
    if (way == Way::sum_pages) return true;
    if (way == Way::between_pages) return in(device_memory, piece.packed, reach);
    return reachable(piece.packed, piece.bytes);
  }

  void do_piece(Kernel& kernel) {
    if (pieces_until_broken != UINT64_MAX && pieces_until_broken-- == 0) {
      broken = break_with;
      return;
    }
    // A copy: as in the kernel, what the slot holds now.
    Piece& slot = kernel.pieces[kernel.left.back()];
    kernel.left.pop_back();
    const Piece piece = slot;
    const Shape& shape = kernel.shapes[piece.shape];
    if (!touches_only_ours(piece, shape, kernel.way)) {
      broken = kIllegalAddress;
      return;
    }
    uint64_t sum = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      sum += kernel.sum ? move_piece<true>(piece, shape, kernel.way, lane, 32)
                        : move_piece<false>(piece, shape, kernel.way, lane, 32);
    }
    if (kernel.sum) slot.sum = sum;
  }

  void do_batch(const Batch& batch) {
    for (size_t i = 0; i < batch.sizes.size(); ++i) {
      if (!reachable(batch.targets[i], batch.sizes[i]) ||
          !reachable(batch.sources[i], batch.sizes[i])) {
        broken = kIllegalAddress;
        return;
      }
      std::memcpy(reinterpret_cast<void*>(batch.targets[i]),
                  reinterpret_cast<const void*>(batch.sources[i]), batch.sizes[i]);
    }
  }

  // One small step of a stream. False: it has nothing to do, or waits.
  bool advance(FakeStream& stream) {
    if (broken != 0 || stream.ops.empty()) return false;
    Op& op = stream.ops.front();
    if (op.wait != nullptr && !op.wait->happened) return false;
    if (op.kernel != nullptr && !op.kernel->left.empty()) {
      do_piece(*op.kernel);
      return true;
    }
    if (op.batch != nullptr) do_batch(*op.batch);
    if (op.record != nullptr) op.record->happened = true;
    const std::function<void()> work = std::move(op.work);
    stream.ops.pop_front();
    if (work) work();
    return true;
  }

  bool advance_any() {
    std::vector<FakeStream*> all(streams.begin(), streams.end());
    all.push_back(&default_stream);
    const size_t first = below(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      if (advance(*all[(first + i) % all.size()])) return true;
    }
    return false;
  }
  void advance_some() {
    for (uint64_t steps = below(8); steps != 0 && advance_any(); --steps) {
    }
  }

  FakeStream& at(Stream stream) {
    if (is_legacy(stream)) return default_stream;
    auto* const known = static_cast<FakeStream*>(stream);
    if (!streams.contains(known)) std::abort();
    return *known;
  }
  bool ends_capture(Stream stream) {
    if (!at(stream).captures) return false;
    ++ended_captures;
    return true;
  }
};

namespace {

FakeDevice::State* device = nullptr;

// Locks the device, and answers with its error if it has one.
#define FAKE_CALL(name)                                        \
  const std::lock_guard lock(device->mutex);                   \
  if (const int status = device->refused(name); status != 0) { \
    return status;                                             \
  }
// Nothing of ours may become part of a graph.
#define FAKE_CALL_ON_STREAM(name, stream) \
  FAKE_CALL_IN_CONTEXT(name)              \
  if (device->ends_capture(stream)) return 907;
// What needs a context has one.
#define FAKE_CALL_IN_CONTEXT(name)                \
  if (FakeDevice::State::pushed == 0) return 201; \
  FAKE_CALL(name)

int init(unsigned int) { return 0; }
int device_count(int* out) {
  *out = 1;
  return 0;
}
int device_get(Ordinal* out, int number) {
  *out = 7;
  return number == 0 ? 0 : 101;
}
int device_name(char* out, int size, Ordinal) {
  std::strncpy(out, "a fake device", static_cast<size_t>(size));
  return 0;
}
int device_attribute(int* out, int, Ordinal) {
  *out = 3;
  return 0;
}
int context_retain(Context* out, Ordinal) {
  FAKE_CALL("context_retain")
  *out = device;
  ++device->contexts;
  return 0;
}
int context_release(Ordinal) {
  const std::lock_guard lock(device->mutex);
  --device->contexts;
  return 0;
}
int context_push(Context) {
  ++FakeDevice::State::pushed;
  return 0;
}
int context_pop(Context*) {
  --FakeDevice::State::pushed;
  return 0;
}
int module_load(Module* out, const void* image) {
  FAKE_CALL_IN_CONTEXT("module_load")
  if (std::strcmp(static_cast<const char*>(image), "a kernel") != 0) return 200;
  *out = device;
  ++device->modules;
  return 0;
}
int module_unload(Module) {
  const std::lock_guard lock(device->mutex);
  --device->modules;
  return 0;
}
int module_function(Function* out, Module, const char* name) {
  FAKE_CALL_IN_CONTEXT("module_function")
  if (std::strcmp(name, "stemma_move") != 0) return 500;
  *out = device;
  return 0;
}
int launch(Function, unsigned int grid, unsigned int, unsigned int, unsigned int block,
           unsigned int, unsigned int, unsigned int, Stream stream, void** parameters, void**) {
  FAKE_CALL_ON_STREAM("launch", stream)
  if (grid == 0 || block == 0 || block > 1024) return 1;
  auto kernel = std::make_unique<Kernel>();
  kernel->pieces = *static_cast<Piece**>(parameters[0]);
  kernel->left.resize(*static_cast<uint32_t*>(parameters[1]));
  for (uint32_t i = 0; i < kernel->left.size(); ++i) kernel->left[i] = i;
  for (size_t i = kernel->left.size(); i > 1; --i) {
    std::swap(kernel->left[i - 1], kernel->left[device->below(i)]);
  }
  kernel->shapes = reinterpret_cast<const Shape*>(*static_cast<Address*>(parameters[2]));
  kernel->way = static_cast<Way>(*static_cast<uint32_t*>(parameters[3]));
  kernel->sum = *static_cast<uint32_t*>(parameters[4]) != 0;
  Op op;
  op.kernel = std::move(kernel);
  device->at(stream).ops.push_back(std::move(op));
  return 0;
}
int stream_create(Stream* out, unsigned int) {
  FAKE_CALL_IN_CONTEXT("stream_create")
  auto* const made = new FakeStream;
  device->streams.insert(made);
  *out = made;
  return 0;
}
int stream_destroy(Stream stream) {
  const std::lock_guard lock(device->mutex);
  auto& known = device->at(stream);
  while (device->broken == 0 && !known.ops.empty() && device->advance_any()) {
  }
  device->streams.erase(&known);
  delete &known;
  return 0;
}
int stream_synchronize(Stream stream) {
  for (;;) {
    FAKE_CALL_ON_STREAM("stream_synchronize", stream)
    if (device->at(stream).ops.empty()) return 0;
    if (!device->advance_any() && device->broken == 0) std::abort();  // It would wait for ever.
  }
}
int stream_wait(Stream stream, Event event, unsigned int) {
  FAKE_CALL_ON_STREAM("stream_wait", stream)
  Op op;
  op.wait = static_cast<FakeEvent*>(event)->last;
  if (op.wait != nullptr) device->at(stream).ops.push_back(std::move(op));
  return 0;
}
int event_create(Event* out, unsigned int) {
  FAKE_CALL_IN_CONTEXT("event_create")
  auto* const made = new FakeEvent;
  device->events.insert(made);
  *out = made;
  return 0;
}
int event_destroy(Event event) {
  const std::lock_guard lock(device->mutex);
  auto* const known = static_cast<FakeEvent*>(event);
  if (device->events.erase(known) == 0) std::abort();
  delete known;
  return 0;
}
int event_record(Event event, Stream stream) {
  FAKE_CALL_ON_STREAM("event_record", stream)
  Op op;
  op.record = static_cast<FakeEvent*>(event)->last = std::make_shared<Recording>();
  device->at(stream).ops.push_back(std::move(op));
  return 0;
}
int event_query(Event event) {
  FAKE_CALL_IN_CONTEXT("event_query")
  device->advance_some();
  if (device->broken != 0) return device->broken;
  const auto& last = static_cast<FakeEvent*>(event)->last;
  return last == nullptr || last->happened ? 0 : kNotReady;
}
int event_wait(Event event) {
  for (;;) {
    FAKE_CALL_IN_CONTEXT("event_wait")
    const auto& last = static_cast<FakeEvent*>(event)->last;
    if (last == nullptr || last->happened) return 0;
    if (!device->advance_any() && device->broken == 0) std::abort();
  }
}
int memory_take(Address* out, size_t bytes) {
  FAKE_CALL_IN_CONTEXT("memory_take")
  *out = reinterpret_cast<Address>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  if (*out == 0) return 2;
  device->device_memory[*out] = bytes;
  return 0;
}
int memory_free(Address memory) {
  const std::lock_guard lock(device->mutex);
  if (device->device_memory.erase(memory) == 0) return 1;
  std::free(reinterpret_cast<void*>(memory));
  return 0;
}
int copy_to_device(Address to, const void* from, size_t bytes) {
  FAKE_CALL_IN_CONTEXT("copy_to_device")
  if (!device->in(device->device_memory, to, bytes)) return 1;
  // As with pageable memory: `from` was read when this returns, and the bytes arrive later.
  const auto* const begin = static_cast<const uint8_t*>(from);
  Op op;
  op.work = [to, read = std::vector<uint8_t>(begin, begin + bytes)] {
    std::memcpy(reinterpret_cast<void*>(to), read.data(), read.size());
  };
  device->default_stream.ops.push_back(std::move(op));
  return 0;
}
int host_register(void* memory, size_t bytes, unsigned int) {
  FAKE_CALL_IN_CONTEXT("host_register")
  device->pinned[reinterpret_cast<Address>(memory)] = bytes;
  return 0;
}
int host_unregister(void* memory) {
  const std::lock_guard lock(device->mutex);
  return device->pinned.erase(reinterpret_cast<Address>(memory)) == 1 ? 0 : 713;
}
int pointer_attributes(unsigned int count, int* attributes, void** out, Address pointer) {
  FAKE_CALL_IN_CONTEXT("pointer_attributes")
  const bool ours = device->in(device->device_memory, pointer, 1);
  const bool known = ours || device->in(device->pinned, pointer, 1);
  for (unsigned int i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case 2: *static_cast<unsigned int*>(out[i]) = ours ? 2 : known ? 1 : 0; break;
      case 3: *static_cast<Address*>(out[i]) = known ? pointer : 0; break;
      case 9: *static_cast<int*>(out[i]) = 0; break;
      default: return 1;
    }
  }
  return 0;
}
int copy_batch(Address* targets, Address* sources, size_t* sizes, size_t count, CopyAttributes* a,
               size_t* attribute_of, size_t attribute_count, Stream stream) {
  FAKE_CALL_ON_STREAM("copy_batch", stream)
  if (is_legacy(stream) || count == 0 || attribute_count != 1 || attribute_of[0] != 0 ||
      a->source_order != 1) {
    return 1;
  }
  Op op;
  op.batch = std::make_unique<Batch>(
      Batch{{targets, targets + count}, {sources, sources + count}, {sizes, sizes + count}});
  device->at(stream).ops.push_back(std::move(op));
  return 0;
}

int stream_is_capturing(Stream stream, int* out) {
  FAKE_CALL_IN_CONTEXT("stream_is_capturing")
  if (is_legacy(stream) && std::any_of(device->streams.begin(), device->streams.end(),
                                       [](const FakeStream* one) { return one->captures; })) {
    return 906;
  }
  *out = device->at(stream).captures ? 1 : 0;
  return 0;
}

}  // namespace

FakeDevice::FakeDevice(uint64_t seed) : state_(std::make_unique<State>()) {
  if (device != nullptr) std::abort();
  device = state_.get();
  state_->random = seed;
  driver_ = {init,
             device_count,
             device_get,
             device_name,
             device_attribute,
             context_retain,
             context_release,
             context_push,
             context_pop,
             module_load,
             module_unload,
             module_function,
             launch,
             stream_create,
             stream_destroy,
             stream_synchronize,
             stream_wait,
             event_create,
             event_destroy,
             event_record,
             event_query,
             event_wait,
             memory_take,
             memory_free,
             copy_to_device,
             host_register,
             host_unregister,
             pointer_attributes,
             copy_batch,
             nullptr,
             stream_is_capturing,
             nullptr};
}

FakeDevice::~FakeDevice() {
  for (FakeStream* stream : state_->streams) delete stream;
  for (FakeEvent* event : state_->events) delete event;
  for (const auto& [memory, bytes] : state_->device_memory) {
    std::free(reinterpret_cast<void*>(memory));
  }
  device = nullptr;
}

Stream FakeDevice::make_stream() {
  const std::lock_guard lock(state_->mutex);
  auto* const made = new FakeStream;
  state_->streams.insert(made);
  return made;
}

void FakeDevice::enqueue(Stream stream, std::function<void()> work) {
  const std::lock_guard lock(state_->mutex);
  Op op;
  op.work = std::move(work);
  state_->at(stream).ops.push_back(std::move(op));
}

void FakeDevice::finish(Stream stream) {
  for (;;) {
    const std::lock_guard lock(state_->mutex);
    if (state_->broken != 0 || state_->at(stream).ops.empty()) return;
    if (!state_->advance_any() && state_->broken == 0) std::abort();
  }
}

uint8_t* FakeDevice::take_device_memory(uint64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  auto* const memory =
      static_cast<uint8_t*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  state_->device_memory[reinterpret_cast<Address>(memory)] = bytes;
  return memory;
}
void FakeDevice::give_back_device_memory(uint8_t* memory) {
  memory_free(reinterpret_cast<Address>(memory));
}
void FakeDevice::pin(void* memory, uint64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->pinned[reinterpret_cast<Address>(memory)] = bytes;
}
void FakeDevice::unpin(void* memory) { host_unregister(memory); }

void FakeDevice::capture(Stream stream, bool on) {
  const std::lock_guard lock(state_->mutex);
  state_->at(stream).captures = on;
}
uint64_t FakeDevice::ended_captures() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ended_captures;
}

void FakeDevice::break_after(uint64_t pieces, int status) {
  const std::lock_guard lock(state_->mutex);
  state_->pieces_until_broken = pieces;
  state_->break_with = status;
}

void FakeDevice::refuse(const std::string& function, int status, uint32_t times, uint32_t after) {
  const std::lock_guard lock(state_->mutex);
  state_->refusals[function] = {status, times, after};
}

std::string FakeDevice::leftovers() const {
  const std::lock_guard lock(state_->mutex);
  std::string all;
  const auto add = [&](const char* what, size_t count) {
    if (count != 0) all += std::to_string(count) + " " + what + " ";
  };
  add("streams", state_->streams.size());
  add("events", state_->events.size());
  add("contexts", static_cast<size_t>(state_->contexts));
  add("modules", static_cast<size_t>(state_->modules));
  add("device memory", state_->device_memory.size());
  add("pinned", state_->pinned.size());
  return all;
}

}  // namespace stemma::test
