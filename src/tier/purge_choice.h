// PurgeChoice decides which entries a purge takes and adds them up. All tiers use it like this:
//
//   if looks_first(): look() at every entry --> takes() each; remove what it takes
//
// Threading:  one thread at a time.
#pragma once

#include <optional>

#include "tier/followers.h"

namespace stemma::tier {

class PurgeChoice {
 public:
  // Borrows the purge.
  explicit PurgeChoice(const Purge& what) : what_(what) {
    if (what.follows) followers_.emplace(what);
  }

  // Whether a single entry is not enough to decide. Only then look() and takes() throw
  // std::bad_alloc.
  bool looks_first() const noexcept { return followers_.has_value(); }
  void look(const EntryKey& key, const EntryInfo& info) { followers_->show(key, info); }
  // Returns whether the purge takes it, and counts it then.
  bool takes(const EntryKey& key, const EntryInfo& info) {
    bool taken = what_.takes(key, info);
    if (taken && followers_) {
      const Followers::Goes goes = followers_->ask(key, info);
      taken = goes != Followers::Goes::no;
      if (goes == Followers::Goes::unsure) ++purged.unsure;
    }
    if (!taken) return false;
    ++purged.entries;
    purged.bytes += info.bytes;
    return true;
  }

  Purged purged;

 private:
  const Purge& what_;
  std::optional<Followers> followers_;
};

}  // namespace stemma::tier
