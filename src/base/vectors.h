// Prepare, then change: allocate before the first change, so that nothing can fail after it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace stemma::base {

// Reserves room for `more` elements beyond the present ones; grows as push_back() does. May throw
// std::bad_alloc; nothing has changed then.
template <class T>
void make_room(std::vector<T>& vector, size_t more) {
  const size_t wanted = vector.size() + more;
  if (wanted > vector.capacity()) vector.reserve(std::max(wanted, 2 * vector.capacity()));
}

}  // namespace stemma::base
