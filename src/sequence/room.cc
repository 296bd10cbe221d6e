#include "sequence/room.h"

#include <algorithm>

#include "base/check.h"
#include "base/vectors.h"

namespace stemma::sequence {

void Room::create(const EngineTraits& traits) {
  unified_ = traits.unified;
  context_ = traits.context_tokens;
  pieces_.resize(traits.sequences);
  for (Pieces& pieces : pieces_) pieces.reserve(4);
}

uint64_t Room::free_for(SequenceId sequence) const noexcept {
  const uint64_t taken = unified_ ? used_ : length(sequence);
  return context_ - std::min(context_, taken);
}

uint64_t Room::free_if(SequenceId sequence, uint32_t keep, const std::vector<uint8_t>& gone) const {
  if (!unified_) return context_ - std::min<uint64_t>(context_, std::min(keep, length(sequence)));
  std::vector<uint32_t> ends(extents_.size());
  for (uint32_t s = 0; s < pieces_.size(); ++s) {
    const bool mine = s == to_index(sequence);
    if (!mine && gone[s] != 0) continue;
    for (const Piece& piece : pieces_[s]) {
      if (mine && piece.begin >= keep) break;
      const uint32_t end = mine ? std::min(piece.end, keep) : piece.end;
      ends[piece.extent] = std::max(ends[piece.extent], end - piece.begin);
    }
  }
  uint64_t taken = 0;
  for (uint32_t length : ends) taken += length;
  return context_ - std::min(context_, taken);
}

void Room::prepare(SequenceId sequence, SequenceId from) {
  // Room for one piece more than it shares, so for one extent more, and for putting it back.
  base::make_room(at(sequence), at(from).size() + 1);
  base::make_room(extents_, 1);
  base::make_room(free_extents_,
                  extents_.size() + 1 - std::min(extents_.size() + 1, free_extents_.size()));
}

uint32_t Room::new_extent(uint32_t begin) noexcept {
  uint32_t extent;
  if (free_extents_.empty()) {
    extent = static_cast<uint32_t>(extents_.size());
    extents_.emplace_back();
  } else {
    extent = free_extents_.back();
    free_extents_.pop_back();
  }
  extents_[extent] = {1, begin, begin};
  return extent;
}

void Room::settle(uint32_t extent) noexcept {
  Extent& it = extents_[extent];
  uint32_t end = it.begin;
  if (it.users != 0) {
    // Every sequence that has part of an extent has its beginning.
    for (const Pieces& pieces : pieces_) {
      const auto piece =
          std::lower_bound(pieces.begin(), pieces.end(), it.begin,
                           [](const Piece& left, uint32_t begin) { return left.begin < begin; });
      if (piece != pieces.end() && piece->extent == extent) end = std::max(end, piece->end);
    }
  }
  used_ -= it.end - end;
  it.end = end;
  if (it.users == 0) free_extents_.push_back(extent);
}

void Room::set_length(SequenceId sequence, uint32_t n) noexcept {
  Pieces& pieces = at(sequence);
  const uint32_t length = length_of(pieces);
  if (n > length) {
    // It continues in its last extent if no other sequence has more of that extent.
    if (pieces.empty() || extents_[pieces.back().extent].end != length) {
      pieces.push_back({new_extent(length), length, length});
    }
    used_ += n - length;
    pieces.back().end = n;
    extents_[pieces.back().extent].end = n;
    return;
  }
  while (length_of(pieces) > n) {
    Piece& last = pieces.back();
    const uint32_t extent = last.extent;
    if (last.begin >= n) {
      pieces.pop_back();
      --extents_[extent].users;
    } else {
      last.end = n;
    }
    settle(extent);
  }
}

// Joins adjacent extents that no other sequence has, so that a released past leaves no trace.
void Room::join(Pieces& pieces) noexcept {
  size_t last = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    Extent& before = extents_[pieces[last].extent];
    Extent& it = extents_[pieces[i].extent];
    if (before.users != 1 || it.users != 1) {
      pieces[++last] = pieces[i];
      continue;
    }
    pieces[last].end = before.end = it.end;
    it = {};
    free_extents_.push_back(pieces[i].extent);
  }
  pieces.resize(std::min(pieces.size(), last + 1));
}

void Room::share(SequenceId from, SequenceId to, uint32_t n) noexcept {
  join(at(from));
  Pieces& mine = at(to);
  for (const Piece& piece : at(from)) {
    if (piece.begin >= n) break;
    mine.push_back({piece.extent, piece.begin, std::min(piece.end, n)});
    ++extents_[piece.extent].users;
  }
}

void Room::check_invariants() const {
  std::vector<uint32_t> users(extents_.size());
  std::vector<uint32_t> ends(extents_.size());
  for (const Pieces& pieces : pieces_) {
    uint32_t at = 0;
    for (const Piece& piece : pieces) {
      STEMMA_CHECK(piece.begin == at && piece.end > piece.begin);
      STEMMA_CHECK(extents_[piece.extent].begin == piece.begin);
      at = piece.end;
      ++users[piece.extent];
      ends[piece.extent] = std::max(ends[piece.extent], piece.end);
    }
  }
  uint64_t used = 0;
  size_t unused = 0;
  for (size_t e = 0; e < extents_.size(); ++e) {
    STEMMA_CHECK(extents_[e].users == users[e]);
    if (users[e] == 0) {
      ++unused;
      continue;
    }
    STEMMA_CHECK(extents_[e].end == ends[e]);
    used += ends[e] - extents_[e].begin;
  }
  STEMMA_CHECK(used == used_ && unused == free_extents_.size());
}

}  // namespace stemma::sequence
