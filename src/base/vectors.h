// Prepare, then change: memory is taken before the first change, so that nothing fails after it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace stemma::base {

// Room for `more` elements beyond those that are there; grows as push_back() does. May throw
// std::bad_alloc, and then nothing has changed.
template <class T>
void make_room(std::vector<T>& vector, size_t more) {
  const size_t wanted = vector.size() + more;
  if (wanted > vector.capacity()) vector.reserve(std::max(wanted, 2 * vector.capacity()));
}

}  // namespace stemma::base
