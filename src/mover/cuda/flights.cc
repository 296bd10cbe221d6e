#include "mover/cuda/flights.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "tier/transfer_arena.h"

namespace stemma::mover::cuda {
namespace {

constexpr uint32_t kThreads = 1024;
constexpr auto kBetweenQuestions = std::chrono::microseconds(20);

constexpr Error kBroken(Errc::copy_failed, "the device reported an error that it cannot get over");

uint32_t slots_of(const tier::TransferArena& ring) noexcept {
  return static_cast<uint32_t>(ring.bytes() / sizeof(Piece));
}

}  // namespace

Flights::Flights(const FlightOptions& options)
    : options_(options),
      shapes_(options.shape_list.begin(), options.shape_list.end()),
      ring_(slots_of(*options.ring)) {
  slots_begin_ = reinterpret_cast<Piece*>(options.ring->take(options.ring->bytes()));
  collector_ = std::thread([this] { collect(); });
  finisher_ = std::thread([this] { finish(); });
}

Flights::~Flights() {
  {
    const base::Lock lock(mutex_);
    ending_ = true;
  }
  departed_.notify_all();
  collector_.join();
  {
    const base::Lock lock(mutex_);
    all_collected_ = true;
  }
  ended_.notify_all();
  finisher_.join();
}

Error Flights::failure(Status status) noexcept {
  if (status == kOutOfMemory) return {Errc::out_of_memory, "the device has too little memory"};
  if (!is_final(status)) {
    return {Errc::copy_failed, "the driver refused a call", static_cast<uint32_t>(status)};
  }
  broken_.store(true, std::memory_order_release);
  {
    const base::Lock lock(mutex_);  // Nobody is between looking and waiting.
  }
  arrived_.notify_all();
  return kBroken;
}

Result<void> Flights::order(Stream stream, Stream after) {
  if (stream == after) return {};
  const Event event = options_.events->take();
  if (event == nullptr) return Error(Errc::out_of_memory, "the driver gave no event");
  const Driver& driver = options_.device->driver();
  Status status = driver.event_record(event, after);
  if (status == 0) status = driver.stream_wait(stream, event, 0);
  options_.events->give_back(event);
  if (status != 0) return failure(status);
  return {};
}

Result<void> Flights::launch(const std::shared_ptr<Transfer>& transfer,
                             std::span<const Piece> pieces, uint32_t step) {
  const TransferOptions& options = transfer->options();
  const auto is_long = [&](const Piece& piece) {
    const Shape& shape = shapes_[piece.shape];
    return shape.dims == 0 && shape.wide != 0 && shape.bytes >= batch_from_;
  };
  // Batches cannot go to the legacy default stream.
  const bool batches = batch_from_ != UINT64_MAX && !options.on_device &&
                       !is_legacy(flight_of(*transfer).stream) &&
                       std::any_of(pieces.begin(), pieces.end(), is_long);
  if (!batches) return launch_kernel(transfer, pieces, options.way, step);
  std::vector<Piece> longs, shorts;
  for (const Piece& piece : pieces) (is_long(piece) ? longs : shorts).push_back(piece);
  if (!shorts.empty()) {
    STEMMA_TRY_VOID(launch_kernel(transfer, shorts, options.way, kNoStep));
  }
  return launch_batch(transfer, longs, step);
}

Result<void> Flights::launch_kernel(const std::shared_ptr<Transfer>& transfer,
                                    std::span<const Piece> pieces, Way way, uint32_t step) {
  const Driver& driver = options_.device->driver();
  const bool on_device = transfer->options().on_device;
  const uint32_t blocks =
      on_device ? 2 * options_.device->multiprocessors() : options_.thread_blocks;
  // Several launches share the ring, so that one fills slots while another is under way.
  const size_t most = std::max<uint32_t>(slots_of(*options_.ring) / 4, 1);
  while (!pieces.empty()) {
    const auto now = pieces.first(std::min(pieces.size(), most));
    pieces = pieces.subspan(now.size());
    auto count = static_cast<uint32_t>(now.size());
    STEMMA_TRY(const uint32_t slot, take_slots(count));
    std::memcpy(slots_begin_ + slot, now.data(), now.size_bytes());
    Piece* first = slots_begin_ + slot;
    Address shapes = options_.shapes;
    auto way_number = static_cast<uint32_t>(way);
    uint32_t sum = transfer->options().sum ? 1 : 0;
    void* parameters[] = {&first, &count, &shapes, &way_number, &sum};
    const Status status = driver.launch(options_.kernel, std::min(blocks, count), 1, 1, kThreads, 1,
                                        1, 0, flight_of(*transfer).stream, parameters, nullptr);
    if (status != 0) {
      const Error error = failure(status);
      const base::Lock lock(mutex_);
      ring_.give_back(slot);
      return error;
    }
    STEMMA_TRY_VOID(depart(transfer, slot, count, pieces.empty() ? step : kNoStep));
  }
  return {};
}

Result<void> Flights::launch_batch(const std::shared_ptr<Transfer>& transfer,
                                   std::span<const Piece> pieces, uint32_t step) {
  const bool to_pages = transfer->options().way == Way::to_pages;
  // Pieces of one plane that continue each other on both sides are one copy.
  std::vector<Address> targets, sources;
  std::vector<size_t> sizes;
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    const Address page = piece.page + piece.first;
    const Address target = to_pages ? page : piece.packed;
    const Address source = to_pages ? piece.packed : page;
    bytes += piece.bytes;
    if (!sizes.empty() && targets.back() + sizes.back() == target &&
        sources.back() + sizes.back() == source) {
      sizes.back() += piece.bytes;
      continue;
    }
    targets.push_back(target);
    sources.push_back(source);
    sizes.push_back(piece.bytes);
  }
  CopyAttributes attributes;
  size_t attribute_of = 0, failed = 0;
  const Driver& driver = options_.device->driver();
  const Stream stream = flight_of(*transfer).stream;
  const Status status =
      driver.copy_batch != nullptr
          ? driver.copy_batch(targets.data(), sources.data(), sizes.data(), sizes.size(),
                              &attributes, &attribute_of, 1, stream)
          : driver.copy_batch_12(targets.data(), sources.data(), sizes.data(), sizes.size(),
                                 &attributes, &attribute_of, 1, &failed, stream);
  // What was copied before an error is still under way, so an event has to follow.
  const bool sum = transfer->options().sum && status == 0;
  STEMMA_TRY_VOID(depart(transfer, 0, 0, status == 0 && !sum ? step : kNoStep));
  if (status != 0) return failure(status);
  options_.counters->batched_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (!sum) return {};
  return launch_kernel(transfer, pieces, Way::sum_pages, step);
}

Result<uint32_t> Flights::take_slots(uint32_t count) {
  base::Lock lock(mutex_);
  std::optional<uint32_t> slot = ring_.take(count);
  if (!slot && !broken()) {
    options_.counters->ring_waits.fetch_add(1, std::memory_order_relaxed);
    arrived_.wait(lock, [&]() STEMMA_REQUIRES(mutex_) {
      return broken() || (slot = ring_.take(count)).has_value();
    });
  }
  if (slot) return *slot;
  return kBroken;
}

Result<void> Flights::depart(const std::shared_ptr<Transfer>& transfer, uint32_t slot,
                             uint32_t count, uint32_t step) {
  Status status = kOutOfMemory;
  try {
    status = put_on_its_way(transfer, slot, count, step);
  } catch (const std::bad_alloc&) {  // As if the driver had no memory.
  }
  if (status == 0) return {};
  // Without an event nobody knows when the kernel has run, so wait for it here.
  if (options_.device->driver().stream_synchronize(flight_of(*transfer).stream) != 0) status = 999;
  const Error error = failure(status);
  const base::Lock lock(mutex_);
  if (count != 0) ring_.give_back(slot);
  return error;
}

Status Flights::put_on_its_way(const std::shared_ptr<Transfer>& transfer, uint32_t slot,
                               uint32_t count, uint32_t step) {
  Flight& flight = flight_of(*transfer);
  std::list<Leg> leg;
  leg.push_back({transfer, slot, count, nullptr, flight.stream});
  {
    const base::Lock lock(mutex_);
    flight.events.reserve(flight.events.size() + 1);
  }
  const Event event = options_.events->take();
  if (event == nullptr) return kOutOfMemory;
  const Status status = options_.device->driver().event_record(event, flight.stream);
  if (status != 0) {
    options_.events->give_back(event);
    return status;
  }
  leg.front().event = event;
  {
    const base::Lock lock(mutex_);
    flight.events.push_back(event);
    ++flight.under_way;
    if (step != kNoStep) flight.step_events[step] = event;
    legs_.splice(legs_.end(), leg);
  }
  departed_.notify_one();
  if (step != kNoStep) launched_.notify_all();
  return 0;
}

void Flights::all_launched(const std::shared_ptr<Transfer>& transfer, bool failed) {
  {
    const base::Lock lock(mutex_);
    Flight& flight = flight_of(*transfer);
    flight.all_launched = true;
    flight.failed |= failed;
    if (flight.under_way == 0) over_.push_back(transfer);
  }
  ended_.notify_one();
  launched_.notify_all();
}

Result<Event> Flights::step_event(Transfer& transfer, uint32_t step) {
  base::Lock lock(mutex_);
  Flight& flight = flight_of(transfer);
  launched_.wait(lock, [&] {
    return flight.failed || flight.all_launched || flight.step_events[step] != nullptr;
  });
  if (flight.failed) return Error(Errc::copy_failed, "the transfer failed");
  return flight.step_events[step];
}

void Flights::collect() {
  const Device::Use use(*options_.device);
  stay_out_of_captures(options_.device->driver());
  for (;;) {
    {
      base::Lock lock(mutex_);
      departed_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return ending_ || !legs_.empty(); });
      if (legs_.empty()) return;
    }
    if (!collect_arrived()) std::this_thread::sleep_for(kBetweenQuestions);
  }
}

void Flights::finish() {
  const Device::Use use(*options_.device);
  stay_out_of_captures(options_.device->driver());
  for (;;) {
    std::vector<std::shared_ptr<Transfer>> over;
    {
      base::Lock lock(mutex_);
      ended_.wait(lock,
                  [this]() STEMMA_REQUIRES(mutex_) { return all_collected_ || !over_.empty(); });
      if (over_.empty()) return;
      over.swap(over_);
    }
    for (const auto& transfer : over) transfer->finish(flight_of(*transfer).failed);
  }
}

bool Flights::collect_arrived() {
  // Only this thread removes legs, so they may be looked at without the lock.
  std::vector<std::list<Leg>::iterator> legs;
  {
    const base::Lock lock(mutex_);
    for (auto leg = legs_.begin(); leg != legs_.end(); ++leg) legs.push_back(leg);
  }
  std::vector<Stream> waiting;  // Events of one stream happen in their order.
  bool any = false;
  for (const auto leg : legs) {
    if (std::find(waiting.begin(), waiting.end(), leg->stream) != waiting.end()) continue;
    const Status status = broken() ? 999 : options_.device->driver().event_query(leg->event);
    if (status == kNotReady) {
      waiting.push_back(leg->stream);
      continue;
    }
    any = true;
    // The status of an event is that of the work before it: no retry helps.
    if (status != 0) (void)failure(is_final(status) ? status : 999);
    const base::Lock lock(mutex_);
    arrive(*leg, status);
    legs_.erase(leg);
  }
  if (any) arrived_.notify_all();
  return any;
}

void Flights::arrive(const Leg& leg, Status status) {
  Flight& flight = flight_of(*leg.transfer);
  if (status == 0 && leg.transfer->options().sum) {
    for (uint32_t i = 0; i < leg.count; ++i) {
      const Piece& piece = slots_begin_[leg.slot + i];
      leg.transfer->add_sum(piece.item, piece.sum);
    }
  }
  flight.failed |= status != 0;
  if (leg.count != 0) ring_.give_back(leg.slot);
  if (--flight.under_way == 0 && flight.all_launched) {
    over_.push_back(leg.transfer);
    ended_.notify_one();
  }
}

}  // namespace stemma::mover::cuda
