// Books: the entries that one process believes to be in a shared directory, in order of eviction.
//
// They are an estimate: others put and remove too. Errors show when a file turns out to be gone or
// newer than thought, and in scans, which compare the books with one folder after the other.
//
//   plan() --> written --> publish() --> held until its batch ends --> settle(): may be chosen --> chosen
//          '-> cancel()                                                   by plan() --> gone() or keep()
//
// Invariant:  used_bytes() is the sum of all room listed, promised to puts, and being written by
//             others. While nobody else puts, it never exceeds the capacity: a victim that stays
//             takes its room back from the put that it was promised to. The victims of a plan()
//             must be gone before its put is written. At most slack_bytes (or one entry) of what is
//             promised is unseen: it may not have been there when the last scan began, so others
//             may not know of it.
// Order:      lower priority first, then least recently used. Priorities are known only here: for
//             other processes, and after a restart, all have the default.
// Threading:  one thread at a time; does no I/O.
// Cost:       about 250 bytes an entry; O(log entries) a call, merge() O(entries of the folder).
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "stemma/tier/tier.h"
#include "tier/shared/names.h"

namespace stemma::tier::shared {

// The room a file takes, judged by its size.
inline uint64_t room_of(uint64_t file_bytes) noexcept { return (file_bytes + 4095) / 4096 * 4096; }

class Books {
 public:
  struct Entry {
    uint64_t room = 0;
    uint64_t used_ns = 0;     // Since 1970.
    uint64_t on_file_ns = 0;  // Its file's time, as far as we know.
    Priority priority = kDefaultPriority;
    bool listed = false;   // In the order: not if its batch is under way or it must stay.
    uint64_t changed = 0;  // The scan count when it was put here.
    uint64_t number = 0;
    uint32_t epoch = 0;  // When it was put here without a sync of its own; 0: it was not.
  };
  struct Victim {
    EntryKey key;
    Entry entry;
  };
  struct Plan {
    EntryKey key;
    uint64_t room = 0;  // For the put; 0: nothing was promised.
    std::vector<Victim> victims;
    // The victims' room beyond the put's need; unused until they are gone.
    uint64_t extra = 0;
    // The part of the put's room that was taken back because a victim stayed.
    uint64_t owed = 0;
  };
  struct Seen {
    EntryKey key;
    uint64_t file_bytes = 0, modified_ns = 0;
  };

  Books(uint64_t capacity_bytes, uint64_t slack_bytes)
      : capacity_bytes_(capacity_bytes), slack_bytes_(slack_bytes) {}

  uint64_t entries() const noexcept { return entries_; }
  uint64_t used_bytes() const noexcept { return used_; }
  bool over() const noexcept { return used_ > capacity_bytes_; }
  const Entry* find(const EntryKey& key) const;
  // The entries of a folder. O(its entries).
  std::vector<EntryKey> keys_of(uint32_t folder) const;
  // The entries put in this epoch or later. O(entries).
  std::vector<EntryKey> put_since(uint32_t epoch) const;

  // Whether this much may be promised before the next scan; if not, whether a scan would change
  // that (otherwise the end of a put will); and whether it is time for a scan.
  bool may_promise(uint64_t room) const noexcept {
    return unseen_ == 0 || unseen_ + room <= slack_bytes_;
  }
  bool scan_would_help() const noexcept { return unseen_ > promised_; }
  bool wants_scan() const noexcept { return unseen_ - promised_ > slack_bytes_ / 2; }

  // Promises room to a put, perhaps that of victims which must go first. False: there is none.
  bool plan(const EntryKey& key, uint64_t room, Plan& out);
  // Adds victims until everything promised, and all that is owed, fits the capacity. False: there
  // are not enough; what was owed is still owed.
  bool add_victims(Plan& plan);
  // Call when the victims are gone or kept.
  void end_victims(Plan& plan) noexcept;
  void cancel(Plan& plan);
  // The put is done and uses what was promised. It cannot be chosen before settle(). `epoch`: see
  // Entry. Requires: nothing is owed.
  void publish(const Plan& plan, uint64_t used_ns, Priority priority, uint32_t epoch = 0);
  void settle(const EntryKey& key);

  void gone(const Victim& victim);
  // The victim stays, and the plan loses its room. If its file has another time, it was used then.
  // forever: it is not ours to remove.
  enum class Stays : uint8_t { in_order, forever };
  void keep(Plan& plan, const Victim& victim, Stays stays, uint64_t on_file_ns, uint64_t now_ns);

  // It was used here. An unknown entry is left to the next scan: it may be gone already.
  void use(const EntryKey& key, uint64_t used_ns);
  void note_file_time(const EntryKey& key, uint64_t on_file_ns);
  // Its file was found gone by a look that began at moment(). An entry put since then is another
  // one.
  uint64_t moment() const noexcept { return numbers_; }
  void forget(const EntryKey& key, uint64_t moment);

  // Call these around the listing of each folder. Times later than `now_ns` are not believed. A put
  // that is only promised may be linked after another process listed its folder: no scan has seen
  // it.
  void begin_scan() noexcept { unseen_before_scan_ = unseen_ - promised_; }
  void begin_folder(uint32_t folder);
  void merge(uint32_t folder, std::span<const Seen> seen, uint64_t temporary_bytes,
             uint64_t now_ns);
  void end_scan() noexcept { unseen_ -= std::min(unseen_, unseen_before_scan_); }

 private:
  using Order = std::tuple<Priority, uint64_t, uint64_t>;
  using Folder = std::unordered_map<EntryKey, Entry>;

  static Order order_of(const Entry& entry) noexcept {
    return {entry.priority, entry.used_ns, entry.number};
  }
  Entry* find_own(const EntryKey& key);
  Entry& add(const EntryKey& key, Entry entry);
  void drop(const EntryKey& key, const Entry& entry);
  void list(const EntryKey& key, Entry& entry);
  void unlist(Entry& entry);
  void end_busy(const EntryKey& key);

  const uint64_t capacity_bytes_, slack_bytes_;
  std::array<Folder, kFolders> folders_;
  std::map<Order, EntryKey> order_;
  uint64_t entries_ = 0, used_ = 0, numbers_ = 0;
  // Both are room. `promised_` is the part of `unseen_` that is neither published nor cancelled.
  uint64_t unseen_ = 0, promised_ = 0, unseen_before_scan_ = 0;
  // Being written or removed by us: scans skip those.
  std::unordered_map<EntryKey, uint32_t> busy_;
  uint64_t scans_ = 0;  // Of folders.
  uint32_t scanning_ = kFolders;
  std::unordered_set<EntryKey> removed_;  // Of the folder being listed.
  std::array<uint64_t, kFolders> temporary_ = {};
};

}  // namespace stemma::tier::shared
