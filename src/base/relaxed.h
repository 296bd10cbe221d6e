// Relaxed atomic access to plain words. Optimistic readers read memory that a writer may be
// changing; their results count only after validation under a lock (tree/prefix_tree.h).
#pragma once

namespace stemma::base {

template <class T>
inline T load_relaxed(const T& word) noexcept {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}

template <class T>
inline void store_relaxed(T& word, T value) noexcept {
  __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}

}  // namespace stemma::base
