"""The paged cache of transformers' continuous batching, with Stemma's index in place of its own
allocators. For transformers 5.18 and later.

The memory stays theirs: one tensor, cut into sectors. transformers lends sectors to the attention
types as they are needed. Here every attention type has its own sectors for good, and a PagedCache
says which block holds what. Layers with a sliding window keep their blocks in the order of the
positions, where transformers writes them in a ring: blocks in order can be shared, and so prompts
of window models are found again.
"""

from __future__ import annotations

from typing import Any

from transformers.generation.continuous_batching import cache as theirs
from transformers.generation.continuous_batching.cache_allocators import (
    FullAttentionCacheAllocator,
    SlidingAttentionCacheAllocator,
)

from stemma._errors import WrongState
from stemma._options import Attention, Group
from stemma.torch._batch_books import GONE, BatchBooks, rows_of, split, weights_of

_DEPTH = "stemma_depth"  # How far a forward computes; travels with a batch to its end.
_TRASH_SECTORS = 2  # At the start of their tensor; nobody allocates from them.


class WindowAllocator(SlidingAttentionCacheAllocator):  # type: ignore[misc]
    """Layers with a sliding window, whose blocks lie in the order of the positions."""

    def _compute_blocks_needed(
        self, allocated_blocks: int, past_length: int, query_length: int
    ) -> int:
        needed: int = FullAttentionCacheAllocator._compute_blocks_needed(
            self, allocated_blocks, past_length, query_length
        )
        return needed

    def _rows(self, request_id: str, begin: int, end: int) -> list[int]:
        return rows_of(
            self.block_table[request_id],
            self.tokens_per_page,
            self.block_physical_stride,
            (begin, end),
            self.write_trash_index,
        )

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
        self.use_prefix_sharing = bool(self.allow_block_sharing)
        self._replace_windows(given["config"])
        kinds = list(self.cache_allocators.values())
        windows = [getattr(one, "sliding_window", 0) for one in kinds]
        sizes = [one.bytes_per_block for one in kinds]
        parts = split(self.num_sectors, weights_of(sizes, windows, window_share), "sectors")
        first = _TRASH_SECTORS
        self.groups: list[Group] = []
        self._first: list[int] = []  # Their number of each group's block 0.
        for one, window, sectors in zip(kinds, windows, parts):
            self._first.append(first * one.blocks_per_sector)
            first += sectors
            self.groups.append(
                Group(
                    capacity_blocks=sectors * one.blocks_per_sector,
                    block_tokens=one.tokens_per_page,
                    attention=Attention.WINDOW if window else Attention.FULL,
                    window_tokens=max(0, window - 1),
                    block_bytes=one.bytes_per_block,
                )
            )
        self.books = BatchBooks(
            self.groups, policy=policy, sharing=self.use_prefix_sharing, tell=self._take_tables
        )

    def _replace_windows(self, config: Any) -> None:
        """Puts our allocator where theirs would write into a ring."""
        for name, old in list(self.cache_allocators.items()):
            if not isinstance(old, SlidingAttentionCacheAllocator):
                continue
            new = WindowAllocator(
                index=old.index,
                config=config,
                num_key_value_heads=old.num_key_value_heads,
                cache_dtype=old.cache_dtype,
                page_size=old.tokens_per_page,
                layer_indices=old.layer_indices,
                allow_block_sharing=False,
            )
            data = self.num_sectors * self.bytes_per_sector
            new.register_cache_tensor(self.bytes_per_sector, data, self.cache_tensor, self.pool)
            self.cache_allocators[name] = new
            for layer in old.layer_indices:
                self.layer_to_allocator[layer] = new

    def _take_tables(self, request_id: str, tables: list[list[int]] | None) -> None:
        """Tells their allocators which blocks a request has."""
        for n, one in enumerate(self.cache_allocators.values()):
            if tables is None:
                one.block_table.pop(request_id, None)
            else:
                first = self._first[n]
                one.block_table[request_id] = [
                    GONE if block == GONE else block + first for block in tables[n]
                ]

    # ---- What the scheduler asks ----------------------------------------------------------------

    def search_prefix_match(self, request_id: str, prompt_ids: list[int]) -> int:
        """Holds what is cached of a prompt. Returns how many of its tokens need no computing."""
        return self.books.find(request_id, prompt_ids)

    def can_store_request_tokens(
        self, state: Any, request_len: int, dry_run: bool = False
    ) -> bool:
        """Drafts blocks for the next `request_len` tokens of a request. False: there is no room."""
        past: int = state.current_len()
        if dry_run:
            return all(
                one.needs_new_blocks(state.request_id, past, request_len) <= room
                for one, room in zip(self.cache_allocators.values(), self.books.available())
            )
        prompt: list[int] = []
        if not self.books.has(state.request_id):
            prompt = state.initial_tokens + state.generated_tokens
        # A request that begins in the middle is transformers' warm-up: it computes nothing real.
        return self.books.grow(state.request_id, past + request_len, prompt, warm_up=past > 0)

    def count_storable_requests(self, list_blocks_needed: list[dict[str, int]]) -> int:
        """How many of these requests, taken in order, there would be room for."""
        room = dict(zip(self.cache_allocators, self.books.available()))
        for number, needed in enumerate(list_blocks_needed):
            if any(needed[name] > room[name] for name in room):
                return number
            for name in room:
                room[name] -= needed[name]
        return len(list_blocks_needed)

    def compute_free_capacity(self, relative: bool = True) -> float:
        """What no request holds: free blocks, and cached ones that can be evicted."""
        kinds = self.cache_allocators.values()
        room = self.books.available()
        free: float = sum(n * one.bytes_per_block for n, one in zip(room, kinds))
        whole: int = self.num_sectors * self.bytes_per_sector
        return free / whole if relative else free

    def evict_cached_blocks(self) -> bool:
        """Evicts nothing: can_store_request_tokens() evicts as many blocks as it needs."""
        return False

    def count_new_complete_blocks(self, state: Any, request_len: int) -> dict[str, int]:
        """Notes how far the next forward computes, for mark_complete_blocks()."""
        return {_DEPTH: state.current_len() + request_len}

    # ---- What becomes of a batch ----------------------------------------------------------------

    def mark_complete_blocks(self, state: Any, complete_blocks: dict[str, int]) -> None:
        """A forward is over: what it computed can be found from now on, by whole blocks."""
        if complete_blocks:
            self.books.computed(
                state.request_id,
                complete_blocks.get(_DEPTH, 0),
                lambda: state.initial_tokens + state.generated_tokens,
            )

    def free_blocks(self, request_id: str, no_cache: bool = False) -> None:
        """Ends a request's lease. What was computed stays cached until its room is needed, also
        with `no_cache`: a request that is put back finds it again."""
        self.books.end(request_id)

    def free_all_requests(self, clear_ledgers: bool = False) -> None:
        """Ends all leases; with `clear_ledgers` nothing stays cached."""
        self.books.end_all()
        if clear_ledgers:
            self.books.index.reset()

    def prepare_fork_request(
        self, src_state: Any, dst_req_ids: list[str], copy_src_and_dst: dict[str, Any]
    ) -> list[str]:
        """Forks nothing: transformers then queues every further answer as a request of its own,
        and that finds the prompt in the cache."""
        return []
