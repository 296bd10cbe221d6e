#include "tier/shared/books.h"

#include <algorithm>
#include <utility>

namespace stemma::tier::shared {

Books::Entry* Books::find_own(const EntryKey& key) {
  Folder& folder = folders_[folder_of(key)];
  const auto at = folder.find(key);
  return at == folder.end() ? nullptr : &at->second;
}

const Books::Entry* Books::find(const EntryKey& key) const {
  const Folder& folder = folders_[folder_of(key)];
  const auto at = folder.find(key);
  return at == folder.end() ? nullptr : &at->second;
}

std::vector<EntryKey> Books::keys_of(uint32_t folder) const {
  std::vector<EntryKey> keys;
  for (const auto& [key, entry] : folders_[folder]) keys.push_back(key);
  return keys;
}

std::vector<EntryKey> Books::put_since(uint32_t epoch) const {
  std::vector<EntryKey> keys;
  for (const Folder& folder : folders_) {
    for (const auto& [key, entry] : folder) {
      if (entry.epoch >= epoch) keys.push_back(key);
    }
  }
  return keys;
}

void Books::list(const EntryKey& key, Entry& entry) {
  entry.listed = true;
  order_.emplace(order_of(entry), key);
}

void Books::unlist(Entry& entry) {
  if (entry.listed) order_.erase(order_of(entry));
  entry.listed = false;
}

Books::Entry& Books::add(const EntryKey& key, Entry entry) {
  entry.number = ++numbers_;
  entry.changed = scans_;
  entry.listed = false;
  ++entries_;
  used_ += entry.room;
  return folders_[folder_of(key)].insert_or_assign(key, entry).first->second;
}

void Books::drop(const EntryKey& key, const Entry& entry) {
  if (entry.listed) order_.erase(order_of(entry));
  --entries_;
  used_ -= entry.room;
  const EntryKey copy = key;  // The reference may point into the entry that is erased.
  folders_[folder_of(copy)].erase(copy);
}

void Books::end_busy(const EntryKey& key) {
  const auto at = busy_.find(key);
  if (--at->second == 0) busy_.erase(at);
  if (folder_of(key) == scanning_) removed_.insert(key);
}

bool Books::plan(const EntryKey& key, uint64_t room, Plan& out) {
  out.key = key;
  out.room = room;
  used_ += room;
  unseen_ += room;
  promised_ += room;
  ++busy_[key];
  if (add_victims(out)) return true;
  cancel(out);
  return false;
}

bool Books::add_victims(Plan& plan) {
  const uint64_t owed = std::exchange(plan.owed, 0);
  used_ += owed;
  while (over()) {
    if (order_.empty()) {
      // The plan keeps the victims it has found: they go back, or make the directory smaller.
      used_ -= owed;
      plan.owed = owed;
      break;
    }
    const EntryKey key = order_.begin()->second;
    Victim victim{key, *find_own(key)};
    drop(key, victim.entry);
    ++busy_[key];
    plan.victims.push_back(std::move(victim));
  }
  // The rest of the last victim's room must not be promised to others: the victim may turn out to
  // stay. Room that others had taken beyond the capacity is not part of that rest: freeing it only
  // brings the directory back to its capacity.
  uint64_t freed = 0;
  for (const Victim& victim : plan.victims) freed += victim.entry.room;
  const uint64_t promised = plan.room - plan.owed;
  used_ -= plan.extra;
  plan.extra = 0;
  if (plan.room != 0 && freed > promised && !over()) {
    plan.extra = std::min(freed - promised, capacity_bytes_ - used_);
  }
  used_ += plan.extra;
  return plan.owed == 0 && !over();
}

void Books::end_victims(Plan& plan) noexcept {
  used_ -= std::exchange(plan.extra, 0);
  plan.victims.clear();
}

void Books::cancel(Plan& plan) {
  for (const Victim& victim : plan.victims) {
    keep(plan, victim, Stays::in_order, victim.entry.on_file_ns, kNever);
  }
  end_victims(plan);
  if (plan.room == 0) return;
  used_ -= plan.room - std::exchange(plan.owed, 0);
  unseen_ -= plan.room;
  promised_ -= plan.room;
  end_busy(plan.key);
  plan.room = 0;
}

void Books::publish(const Plan& plan, uint64_t used_ns, Priority priority, uint32_t epoch) {
  if (const Entry* there = find_own(plan.key)) drop(plan.key, *there);
  used_ -= plan.room;
  promised_ -= plan.room;
  Entry& added =
      add(plan.key,
          {.room = plan.room, .used_ns = used_ns, .on_file_ns = used_ns, .priority = priority});
  added.epoch = epoch;
  end_busy(plan.key);
}

void Books::settle(const EntryKey& key) {
  Entry* entry = find_own(key);
  if (entry != nullptr && !entry->listed) list(key, *entry);
}

void Books::gone(const Victim& victim) { end_busy(victim.key); }

void Books::keep(Plan& plan, const Victim& victim, Stays stays, uint64_t on_file_ns,
                 uint64_t now_ns) {
  end_busy(victim.key);
  if (find_own(victim.key) != nullptr) return;  // It was put again, with its own room.
  const uint64_t extra = std::min(plan.extra, victim.entry.room);
  const uint64_t taken = std::min(plan.room - plan.owed, victim.entry.room - extra);
  plan.extra -= extra;
  plan.owed += taken;
  used_ -= extra + taken;
  Entry& entry = add(victim.key, victim.entry);
  if (stays == Stays::forever) return;
  if (on_file_ns > entry.on_file_ns) entry.used_ns = std::min(on_file_ns, now_ns);
  entry.on_file_ns = on_file_ns;
  list(victim.key, entry);
}

void Books::use(const EntryKey& key, uint64_t used_ns) {
  Entry* entry = find_own(key);
  if (entry == nullptr || !entry->listed || entry->used_ns >= used_ns) return;
  unlist(*entry);
  entry->used_ns = used_ns;
  list(key, *entry);
}

void Books::note_file_time(const EntryKey& key, uint64_t on_file_ns) {
  if (Entry* entry = find_own(key)) entry->on_file_ns = std::max(entry->on_file_ns, on_file_ns);
}

void Books::forget(const EntryKey& key, uint64_t moment) {
  if (folder_of(key) == scanning_) removed_.insert(key);
  const Entry* entry = find_own(key);
  if (entry != nullptr && entry->number <= moment) drop(key, *entry);
}

void Books::begin_folder(uint32_t folder) {
  scanning_ = folder;
  ++scans_;
  removed_.clear();
}

void Books::merge(uint32_t folder, std::span<const Seen> seen, uint64_t temporary_bytes,
                  uint64_t now_ns) {
  used_ = used_ - temporary_[folder] + temporary_bytes;
  temporary_[folder] = temporary_bytes;
  std::unordered_set<EntryKey> there;
  for (const Seen& file : seen) {
    there.insert(file.key);
    if (busy_.contains(file.key) || removed_.contains(file.key)) continue;
    const uint64_t time_ns = std::min(file.modified_ns, now_ns);
    Entry* entry = find_own(file.key);
    if (entry == nullptr) {
      Entry& added = add(
          file.key,
          {.room = room_of(file.file_bytes), .used_ns = time_ns, .on_file_ns = file.modified_ns});
      list(file.key, added);
      continue;
    }
    if (entry->changed == scans_) continue;  // The listing may describe the earlier entry.
    used_ = used_ - entry->room + room_of(file.file_bytes);
    entry->room = room_of(file.file_bytes);
    entry->on_file_ns = file.modified_ns;
    use(file.key, time_ns);
  }
  std::vector<EntryKey> lost;
  for (const auto& [key, entry] : folders_[folder]) {
    if (entry.changed != scans_ && !there.contains(key)) lost.push_back(key);
  }
  for (const EntryKey& key : lost) drop(key, *find_own(key));
  scanning_ = kFolders;
  removed_.clear();
}

}  // namespace stemma::tier::shared
