// The namespaces of objects in a directory: what other engines stored through stemma_store.h.
//
// The scope's fingerprint and the layout of an entry identify its namespace. The namespace's name
// is in the envelope of each of its entries, so one of them is read.
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tier/entry.h"

namespace stemma::cli {

class ObjectSpaces {
 public:
  // Reads an entry's payload into the vector; returns false if it cannot.
  using Read = std::function<bool(std::vector<uint8_t>&)>;

  // Counts the entry if it is an object's. Reads one entry of each namespace, or a few if they are
  // damaged.
  void add(const tier::EntryHeader& header, const Read& read);
  bool empty() const noexcept { return all_.empty(); }
  // One line per namespace; json(): the elements of an array.
  std::string lines() const;
  std::string json() const;

 private:
  struct Space {
    std::string name;  // Empty: all envelopes read were sealed or damaged.
    uint64_t layout = 0, value_bytes = 0;
    uint64_t entries = 0, bytes = 0;
    uint32_t tries = 0;  // Attempts to read an envelope.
  };
  std::map<std::pair<uint64_t, uint64_t>, Space> all_;  // By owner and layout.
};

}  // namespace stemma::cli
