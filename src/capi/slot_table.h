// A SlotTable keeps things that callers name by 64-bit numbers, and answers any number safely.
//
// A number is a slot's index and the slot's generation. The generation rises each time the slot is
// used anew, so a number is never given twice. A slot is in one of three states, held in one 64-bit
// word together with the generation:
//
//            put(): store release                    Use(): compare-exchange acquire
//   free g ------------------------> idle g + 1 <------------------------------------> busy g + 1
//     ^                                              ~Use(): store release                 |
//     '------------------------------------------------------------------------------------'
//                                     Use::drop(): store release
//
// Only the thread that made a slot busy touches its value. A second call with the same number at
// the same time finds the slot busy; a call after drop() finds another state or generation.
//
// Slots live in segments that double in size, never move and are never freed. Free slots wait in
// kShards stacks; a thread has a favourite stack, and goes on to the next one rather than wait. A
// slot whose generations are used up is not used again.
//
// Invariant:  a slot is in at most one stack, and a slot in a stack is free.
// Threading:  thread-safe.
// Cost:       put, use and drop: one atomic exchange each, and the stack's; no allocation unless
//             there are more things than ever before. 64 bytes a slot for small values.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "base/lock.h"

namespace stemma::capi {

enum class Found : uint8_t { yes, busy, gone, never };

// This thread's favourite stack; see SlotTable.
uint32_t favourite_shard() noexcept;

template <class T>
class SlotTable {
  struct alignas(64) Slot {
    std::atomic<uint64_t> state{0};
    uint32_t next = kNone;  // In a stack.
    T value{};
  };

 public:
  constexpr explicit SlotTable(uint32_t first_generation = 0) noexcept
      : first_generation_(first_generation) {}
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;

  // For tests; otherwise tables stay until the process ends.
  void free_memory() noexcept {
    for (uint32_t s = 0; s < segment_count_; ++s) {
      Slot* slots = segments_[s].exchange(nullptr);
      std::destroy_n(slots, kFirstSegment << s);
      ::operator delete(slots, std::align_val_t{alignof(Slot)});
    }
    segment_count_ = 0;
  }

  // Lets `set` fill in a fresh value and returns its number; 0 when the system gives no memory.
  template <class Set>
  uint64_t put(Set&& set) noexcept {
    const uint32_t index = pop();
    if (index == kNone) return 0;
    Slot& slot = at(index);
    set(slot.value);
    const uint32_t generation = generation_of(slot.state.load(std::memory_order_relaxed)) + 1;
    slot.state.store(word(generation, kIdle), std::memory_order_release);
    return uint64_t{generation} << 32U | index;
  }

  // The right to use a thing, for as long as it lives.
  class Use {
   public:
    Use(SlotTable& table, uint64_t number) noexcept : table_(table), number_(number) {
      const auto index = static_cast<uint32_t>(number);
      const auto generation = static_cast<uint32_t>(number >> 32U);
      slot_ = generation == 0 ? nullptr : table.find(index);
      if (slot_ == nullptr) return;
      uint64_t expected = word(generation, kIdle);
      if (slot_->state.compare_exchange_strong(expected, word(generation, kBusy),
                                               std::memory_order_acquire,
                                               std::memory_order_relaxed)) [[likely]] {
        found_ = Found::yes;
      } else if (generation_of(expected) == generation && (expected & kStates) == kBusy) {
        found_ = Found::busy;
      } else {
        found_ = generation_of(expected) >= generation ? Found::gone : Found::never;
      }
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (found_ == Found::yes) leave(kIdle);
    }

    Found found() const noexcept { return found_; }
    // Requires found() == yes.
    T& operator*() noexcept { return slot_->value; }
    T* operator->() noexcept { return &slot_->value; }

    // The thing is over; its number is gone. Requires found() == yes.
    void drop() noexcept {
      slot_->value = T{};
      leave(kFree);
      if (static_cast<uint32_t>(number_ >> 32U) != kLastGeneration) {
        table_.push(static_cast<uint32_t>(number_));
      }
      found_ = Found::gone;
    }

   private:
    void leave(uint64_t state) noexcept {
      slot_->state.store(word(static_cast<uint32_t>(number_ >> 32U), state),
                         std::memory_order_release);
    }
    SlotTable& table_;
    uint64_t number_;
    Slot* slot_ = nullptr;
    Found found_ = Found::never;
  };

 private:
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;
  static constexpr uint32_t kLastGeneration = 0xFFFF'FFFFU;
  static constexpr uint64_t kFree = 0, kIdle = 1, kBusy = 2, kStates = 3;
  static constexpr uint32_t kShards = 16;
  static constexpr uint32_t kFirstSegment = 64;
  static constexpr uint32_t kSegments = 21;  // 134 million slots.

  // A stack of free slots. `taken` is held for a few instructions and never waited for.
  struct alignas(64) Shard {
    std::atomic<bool> taken{false};
    uint32_t top = kNone;

    bool try_take() noexcept {
      return !taken.load(std::memory_order_relaxed) &&
             !taken.exchange(true, std::memory_order_acquire);
    }
    void leave() noexcept { taken.store(false, std::memory_order_release); }
  };

  static constexpr uint64_t word(uint32_t generation, uint64_t state) noexcept {
    return uint64_t{generation} << 2U | state;
  }
  static constexpr uint32_t generation_of(uint64_t state) noexcept {
    return static_cast<uint32_t>(state >> 2U);
  }

  Slot* find(uint32_t index) noexcept {
    const uint64_t place = uint64_t{index} + kFirstSegment;
    const auto segment = static_cast<uint32_t>(std::bit_width(place) - kFirstWidth);
    if (segment >= kSegments) return nullptr;
    Slot* slots = segments_[segment].load(std::memory_order_acquire);
    return slots == nullptr ? nullptr : slots + (place - (uint64_t{kFirstSegment} << segment));
  }
  Slot& at(uint32_t index) noexcept { return *find(index); }

  uint32_t pop() noexcept {
    const uint32_t favourite = favourite_shard();
    for (;;) {
      bool contended = false;
      for (uint32_t i = 0; i < kShards; ++i) {
        Shard& shard = shards_[(favourite + i) % kShards];
        if (!shard.try_take()) {
          contended = true;
          continue;
        }
        const uint32_t index = shard.top;
        if (index != kNone) shard.top = at(index).next;
        shard.leave();
        if (index != kNone) return index;
      }
      if (!contended && !grow()) return kNone;
    }
  }

  void push(uint32_t index) noexcept {
    for (uint32_t i = favourite_shard();; ++i) {
      Shard& shard = shards_[i % kShards];
      if (!shard.try_take()) continue;
      at(index).next = shard.top;
      shard.top = index;
      shard.leave();
      return;
    }
  }

  // Another segment, all of whose slots go to one stack. False when the system gives no memory.
  bool grow() noexcept {
    const base::Lock lock(growing_);
    if (segment_count_ == kSegments) return false;
    const uint32_t size = kFirstSegment << segment_count_;
    // Not new[]: its hidden count before the first slot makes leak checkers look twice.
    auto* slots = static_cast<Slot*>(
        ::operator new(size * sizeof(Slot), std::align_val_t{alignof(Slot)}, std::nothrow));
    if (slots == nullptr) return false;
    const uint32_t first = size - kFirstSegment;
    for (uint32_t i = 0; i < size; ++i) {
      std::construct_at(slots + i);
      slots[i].state.store(word(first_generation_, kFree), std::memory_order_relaxed);
      slots[i].next = i + 1 < size ? first + i + 1 : kNone;
    }
    segments_[segment_count_++].store(slots, std::memory_order_release);
    for (uint32_t i = favourite_shard();; ++i) {
      Shard& shard = shards_[i % kShards];
      if (!shard.try_take()) continue;
      slots[size - 1].next = shard.top;
      shard.top = first;
      shard.leave();
      return true;
    }
  }

  static constexpr int kFirstWidth = 7;  // bit_width(kFirstSegment)

  std::array<std::atomic<Slot*>, kSegments> segments_{};
  std::array<Shard, kShards> shards_{};
  base::WaitMutex growing_;
  uint32_t segment_count_ STEMMA_GUARDED_BY(growing_) = 0;  // Under growing_.
  const uint32_t first_generation_;
};

}  // namespace stemma::capi
