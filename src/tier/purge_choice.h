// PurgeChoice: which entries a purge takes, and the sum of them. One way for every tier:
//
//   if looks_first(): look() at every entry --> takes() of each; what it takes is removed
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

  // Whether single entries do not tell. look() and takes() throw std::bad_alloc only then.
  bool looks_first() const noexcept { return followers_.has_value(); }
  void look(const EntryKey& key, const EntryInfo& info) { followers_->show(key, info); }
  // Counts it if so.
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
