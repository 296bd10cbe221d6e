"""The paged cache of transformers' continuous batching, with Stemma's index in place of its own
allocators. For transformers 5.17.

There the layers are cut into groups of equal size, and a block of the memory belongs to one such
group. Groups of one attention type always hold the same positions, so they are one group of the
PagedCache: its block n is one block of the memory for each of them. _batch_cache.py has the same
for later versions, and says how windows are kept.
"""

from __future__ import annotations

from typing import Any

from transformers.generation.continuous_batching import cache as theirs
from transformers.generation.continuous_batching.cache_manager import (
    SlidingAttentionCacheAllocator,
)

from stemma._errors import InvalidArgument, WrongState
from stemma._options import Attention, Group
from stemma.torch._batch_books import GONE, BatchBooks, rows_of, split, weights_of


class WindowAllocator(SlidingAttentionCacheAllocator):  # type: ignore[misc]
    """Layers with a sliding window, whose blocks lie in the order of the positions."""

    def _rows(self, request_id: str, begin: int, end: int) -> list[int]:
        size, trash = self.block_size, self.write_trash_index
        return rows_of(self.block_table[request_id], size, size, (begin, end), trash)

    def get_read_indices(self, request_id: str, past_length: int, query_length: int) -> list[int]:
        """What a forward reads: the window before its first position, then its own positions."""
        begin = max(0, past_length - (self.sliding_window - 1))
        rows = self._rows(request_id, begin, past_length)
        if self.write_trash_index in rows:
            raise WrongState(f"request {request_id} has lost a block of its window")
        return rows + [self.sentinel_index] * query_length

    def get_write_indices(self, request_id: str, past_length: int, query_length: int) -> list[int]:
        """Where a forward writes its positions."""
        return self._rows(request_id, past_length, past_length + query_length)


class BatchCache(theirs.PagedAttentionCache):  # type: ignore[misc]
    """A PagedAttentionCache whose blocks a PagedCache keeps the books of.

    Threading: the manager's thread alone calls it.
    """

    def __init__(
        self, *, policy: str | None = None, window_share: float | None = None, **given: Any
    ) -> None:
        """`given` is what transformers gives its own class. `window_share` is described at
        stemma.torch.continuous.attach()."""
        super().__init__(**given)
        self.use_prefix_sharing = True
        # Their allocators by kind: those for everything, then those for a window.
        full = [one for one in self.group_cache_managers if not hasattr(one, "sliding_window")]
        self._kinds = [kind for kind in (full, self._replace_windows()) if kind]
        windows = [getattr(kind[0], "sliding_window", 0) for kind in self._kinds]
        sizes = [len(kind) for kind in self._kinds]
        parts = split(self.num_blocks, weights_of(sizes, windows, window_share), "blocks")
        layer = 2 * self.block_size * self.num_key_value_heads * self.head_dim
        block_bytes = layer * self.dtype.itemsize * len(self.key_cache)
        first = 0
        self.groups: list[Group] = []
        self._first: list[int] = []  # Where each group's part of the memory begins, in blocks.
        for size, window, blocks in zip(sizes, windows, parts):
            if blocks < size:
                raise InvalidArgument(
                    f"num_blocks is {self.num_blocks}, and a page of this model takes "
                    f"{sum(sizes)}; give a larger number"
                )
            self._first.append(first)
            first += blocks
            self.groups.append(
                Group(
                    capacity_blocks=blocks // size,
                    block_tokens=self.block_size,
                    attention=Attention.WINDOW if window else Attention.FULL,
                    window_tokens=max(0, window - 1),
                    block_bytes=size * block_bytes,
                )
            )
        self.books = BatchBooks(
            self.groups, policy=policy, sharing=True, tell=self._take_tables
        )

    def _replace_windows(self) -> list[Any]:
        """Puts our allocators where theirs would write into a ring. Returns them."""
        made = []
        for n, old in enumerate(self.group_cache_managers):
            if isinstance(old, SlidingAttentionCacheAllocator):
                made.append(
                    WindowAllocator(
                        old._index,
                        old.block_size,
                        old.sliding_window,
                        old.sentinel_index,
                        old.write_trash_index,
                    )
                )
                self.group_cache_managers[n] = made[-1]
        return made

    def _take_tables(self, request_id: str, tables: list[list[int]] | None) -> None:
        """Tells their allocators which blocks a request has."""
        for n, kind in enumerate(self._kinds):
            for k, one in enumerate(kind):
                if tables is None:
                    one.block_table.pop(request_id, None)
                    continue
                first, size = self._first[n] + k, len(kind)
                one.block_table[request_id] = [
                    GONE if block == GONE else block * size + first for block in tables[n]
                ]

    # ---- What the scheduler asks ----------------------------------------------------------------

    def search_prefix_match(self, request_id: str, prompt_ids: list[int]) -> int:
        """Holds what is cached of a prompt. Returns how many of its tokens need no computing."""
        found = self.books.find(request_id, prompt_ids)
        self._total_prefix_length += found
        return found

    def allocate_blocks(self, n_blocks: int, request_id: str, allocated_blocks: int) -> int | None:
        """Drafts `n_blocks` more blocks for a request. None: there is no room."""
        end = (allocated_blocks + n_blocks) * self.block_size
        return n_blocks if self.books.grow(request_id, end) else None

    def blocks_needed(self, num_requested_blocks: int, allocated_blocks: int) -> int:
        """How many blocks of the memory are needed for so many more of a request."""
        return num_requested_blocks * len(self.group_cache_managers)

    def blocks_in_use(self, request_id: str) -> int:
        """How many blocks of the memory a request has."""
        return sum(
            block != GONE
            for one in self.group_cache_managers
            for block in one.block_table.get(request_id, ())
        )

    def get_num_free_blocks(self) -> int:
        """How many blocks of the memory requests could get now, equally many of each group."""
        return min(self.books.available()) * len(self.group_cache_managers)

    # ---- What becomes of a batch ----------------------------------------------------------------

    def mark_shareable_blocks_as_complete(self, state: Any, num_complete_blocks: int) -> None:
        """A forward is over: what it computed can be found from now on, by whole blocks."""
        done = self.books.committed(state.request_id) // self.block_size
        self.books.computed(
            state.request_id,
            (done + num_complete_blocks) * self.block_size,
            lambda: state.initial_tokens + state.generated_tokens,
        )

    def free_blocks(self, request_id: str) -> None:
        """Ends a request's lease. What was computed stays cached until its room is needed."""
        self.books.end(request_id)

    def free_all_requests(self) -> None:
        """Ends all leases."""
        self.books.end_all()

    def compute_max_num_forks(self, source_request_id: str) -> int:
        """None: transformers then queues every further answer as a request of its own, and that
        finds the prompt in the cache."""
        return 0
