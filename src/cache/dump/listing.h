// What is cached, as lists for observers.
//
// Threading:  one thread at a time (the lock of Core). May throw std::bad_alloc.
// Cost:       O(everything).
#pragma once

#include <vector>

#include "cache/books/books.h"

namespace stemma::cache {

// Every cached path that ends at a cell without successor.
std::vector<CachedPath> cached_paths(const Books& books);
// Everything that observers of events would know, as the events that tell it.
EventDump event_dump(const Books& books);

}  // namespace stemma::cache
