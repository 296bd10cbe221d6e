"""A pool of KV blocks in torch tensors, whose index is a PagedCache."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from stemma._cache import PagedCache
from stemma._errors import Closed, CopyFailed, InvalidArgument, OutOfMemory, OutOfRoom, Unsupported
from stemma._lease import Lease
from stemma._mover import CPU, Mover, Plane
from stemma._options import Attention, Group, LookupOptions, u32
from stemma._scope import Scope
from stemma._store import Level
from stemma._tiers import PagedTiers
from stemma.torch._cache import RequestCache
from stemma.torch._order import Order
from stemma.torch._pages import Pages, check_memory, page_memory
from stemma.torch._shapes import GroupShape, ModelShape

if TYPE_CHECKING:
    from types import TracebackType


def _check_device(device: torch.device) -> None:
    if device.type == "cuda" and not torch.cuda.is_available():
        raise Unsupported(
            f"the pool is for {device}, and there is no CUDA device; load the model on the CPU"
        )


def _block_counts(
    groups: Sequence[GroupShape], block_tokens: int, *, tokens: int, saved_states: int
) -> list[int]:
    """How many blocks each group has in a pool of `tokens` tokens."""
    widest = max(group.window for group in groups)
    least = block_tokens * 2 + widest
    if tokens < least:
        size = sum(group.block_bytes for group in groups) // block_tokens
        raise InvalidArgument(
            f"a pool of {tokens} tokens is too small for this model: it needs {least} or more "
            f"({least * size / 2**20:.3g} MiB)"
        )
    return [
        u32("saved_states", saved_states)
        if group.attention is Attention.RECURRENT
        else -(-u32("tokens", tokens) // block_tokens)
        for group in groups
    ]


def _make_pages(
    groups: Sequence[GroupShape],
    counts: Sequence[int],
    memory: Sequence[Any] | None,
    device: torch.device,
) -> list[Pages]:
    """The pages of each group, in memory of the caller's or of their own."""
    if memory is not None and len(memory) != len(groups):
        raise InvalidArgument(f"there are {len(memory)} tensors for {len(groups)} groups")
    return [
        Pages(
            group,
            page_memory(count, group.block_bytes, device)
            if memory is None
            else check_memory(memory[n], count, group.block_bytes, device),
        )
        for n, (group, count) in enumerate(zip(groups, counts))
    ]


class Pool:
    """Blocks of keys and values for one model, found again by their tokens.

        pool = stemma.torch.Pool(stemma.torch.probe(model), scope=scope, tokens=65536)
        cache = pool.cache_for(ids, mask)
        out = model.generate(ids, attention_mask=mask, past_key_values=cache)
        cache.finish(out)

    `attach()` does the last three lines inside of generate(). The pool's memory is taken at once
    and does not grow; when it is full, what was not used for the longest time goes.

    Threading: thread-safe; each cache that it makes serves one thread at a time.
    """

    def __init__(
        self,
        shape: ModelShape,
        *,
        scope: Scope,
        tokens: int,
        block_tokens: int = 16,
        saved_states: int = 64,
        levels: Sequence[Level] = (),
        memory: Sequence[Any] | None = None,
        policy: str | None = None,
        copy_threads: int = 0,
        transfer_bytes: int = 64 << 20,
        queue_bytes: int = 1 << 30,
        query_s: float = 0.05,
        load_s: float = 5.0,
    ) -> None:
        """Takes memory for `tokens` tokens, in blocks of `block_tokens`.

        `saved_states` is for models with running states: how many depths of prompts can be
        continued from. `levels` keep what the pool has no room for, and what a process leaves
        behind: host memory, disks, servers, fastest first. `copy_threads` copy to and from them on
        a CPU (0: four, or as many as there are cores); `transfer_bytes` of memory, pinned for a
        GPU, are set aside for that. `queue_bytes` may wait for a level; what is more is not kept
        there. Levels answer within `query_s` what they have, and within `load_s` they
        load it; what comes later is computed.`memory` are
        tensors of the caller's, one for each of groups: uint8 [blocks, block_bytes]. Raises
        InvalidArgument, OutOfMemory, Unsupported.
        """
        _check_device(shape.device)
        self.shape = shape
        self.scope = scope
        self.block_tokens = u32("block_tokens", block_tokens)
        if self.block_tokens & (self.block_tokens - 1) or not 1 <= self.block_tokens <= 1024:
            raise InvalidArgument(f"block_tokens is {block_tokens}; give a power of two up to 1024")
        self.groups: list[GroupShape] = shape.groups(self.block_tokens)
        counts = _block_counts(
            self.groups, self.block_tokens, tokens=tokens, saved_states=saved_states
        )
        self._order = Order(shape.device)
        self.pages = _make_pages(self.groups, counts, memory, shape.device)
        self._used()  # They are being filled with zeros.
        self._group_of = {
            piece.layer: n for n, group in enumerate(self.groups) for piece in group.pieces
        }
        self.group_options = [
            Group(
                capacity_blocks=count,
                block_tokens=self.block_tokens,
                attention=group.attention,
                window_tokens=max(0, group.window - 1),
                block_bytes=group.block_bytes,
            )
            for group, count in zip(self.groups, counts)
        ]
        self.cache = PagedCache(self.group_options, policy=policy)
        self.tiers: PagedTiers | None = None
        self._mover: Mover | None = None
        if levels:
            try:
                self._open_tiers(
                    levels,
                    copy_threads,
                    transfer_bytes=transfer_bytes,
                    queue_bytes=queue_bytes,
                    query_s=query_s,
                    load_s=load_s,
                )
            except BaseException:
                self.cache.close()
                raise
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._live: weakref.WeakSet[RequestCache] = weakref.WeakSet()
        self._closed = False

    def _open_tiers(
        self, levels: Sequence[Level], threads: int, *, transfer_bytes: int, **limits: Any
    ) -> None:
        """Opens the levels, and what moves blocks between them and the pages."""
        groups = []
        for pages in self.pages:
            at = pages.memory.data_ptr()
            layers = sorted({piece.layer for piece in pages.shape.pieces})
            order = {layer: n for n, layer in enumerate(layers)}
            planes = [
                Plane(at + offset, pages.shape.block_bytes, piece.size, order[piece.layer])
                for piece, offset in zip(pages.shape.pieces, pages.shape.offsets())
            ]
            groups.append((planes, int(pages.memory.shape[0])))
        gpu = self.shape.device.type == "cuda"
        index = self.shape.device.index
        device = (torch.cuda.current_device() if index is None else index) if gpu else CPU
        self._mover = Mover(
            groups, device=device, threads=threads, arena_bytes=transfer_bytes if gpu else 0
        )
        # On a GPU: after the work of torch's default stream, which waits for all others.
        self._order.mover_waits()
        io = self._mover.block_io(0) if gpu else self._mover.block_io()
        self.tiers = PagedTiers(
            levels,
            self.group_options,
            layout=self._mover.layout,
            io=io,
            mover=self._mover,
            transfer_bytes=transfer_bytes,
            **limits,
        )

    # ---- Requests -------------------------------------------------------------------------------

    def cache_for(self, ids: Any, mask: Any = None, *, room: int | None = None) -> RequestCache:
        """A transformers cache that begins with what is known of the prompts `ids` [rows, tokens].

        `mask` has zeros where a row is padded, on the left. At least one token of each row is left
        to compute. `room` is how many columns there will be with the answer, if that is known:
        then nothing has to grow. End the cache with finish() or close().
        """
        return RequestCache(self, ids, mask, room)

    def _lease(self, scope: Scope, tokens: Any) -> tuple[Lease | None, bool]:
        """A lease on a prompt, and whether there is room to keep all of it."""
        hold = None
        if self.tiers is not None and tokens.size > self.block_tokens:
            restored = self.tiers.restore(self.cache, scope, tokens)
            self._count("restored_tokens", restored.restored_tokens)
            hold = restored.hold
        try:
            return self._lease_cached(scope, tokens)
        finally:
            if hold is not None:
                hold.release()

    def _lease_cached(self, scope: Scope, tokens: Any) -> tuple[Lease | None, bool]:
        try:
            return self.cache.lease(scope, tokens), True
        except OutOfRoom:
            self._count("tokens_without_room", int(tokens.size))
        try:
            lookup = LookupOptions(allow_copy=False)
            return self.cache.lease(scope, tokens, draft_tokens=0, lookup=lookup), False
        except OutOfRoom:
            return None, False

    def _run_copies(self, lease: Lease) -> dict[int, int]:
        """Does the copies of a lease. Returns the slot of each recurrent group to load from."""
        slots = {}
        for copy in lease.copies():
            if copy.target is None:
                slots[copy.group] = copy.source
            else:
                self.pages[copy.group].copy(copy.source, copy.target)
        return slots

    def _store(self, scope: Scope, lease: Lease, tokens: Any, begin: int) -> None:
        """Hands positions [begin, committed) to the tiers."""
        if self.tiers is not None and lease.committed > begin:
            self._used()
            try:
                self.tiers.store(scope, tokens, lease, begin=begin)
            except (CopyFailed, OutOfMemory):
                self._count("stores_failed")

    # ---- Order on the device: see _order.py -----------------------------------------------------

    def _used(self) -> None:
        self._order.used()

    def _wait_for_others(self) -> None:
        self._order.wait_for_others()

    # ---- Its state ------------------------------------------------------------------------------

    def _count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + int(by)

    def _began(self, cache: RequestCache) -> None:
        self._count("requests")
        self._count("prompt_tokens", sum(row.tokens.size for row in cache._rows.of))
        self._count("reused_tokens", sum(cache.reused_tokens))
        with self._lock:
            self._live.add(cache)

    def _ended(self, cache: RequestCache) -> None:
        with self._lock:
            self._live.discard(cache)

    def counts(self) -> dict[str, int]:
        """How many requests there were, how many tokens their prompts had, how many of these were
        reused and how many came from the levels; how many tokens and states found no room in the
        pool; and how many prompts could not be handed to the levels."""
        names = (
            "requests prompt_tokens reused_tokens restored_tokens tokens_without_room "
            "states_without_room stores_failed"
        ).split()
        with self._lock:
            return {name: self._counts.get(name, 0) for name in names}

    @property
    def memory_bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(pages.memory.numel() for pages in self.pages)

    def _check(self) -> None:
        if self._closed:
            raise Closed("this pool was closed; make a new one")
        for pages in self.pages:
            pages.check()

    def clear(self) -> None:
        """Forgets everything; what running requests use goes when they end."""
        self.cache.reset(defer=True)

    def close(self) -> None:
        """Ends the pool. Requests that still run are closed, and keep what they have copied."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            live = list(self._live)
        for cache in live:
            cache.close()
        self.cache.close()
        if self.tiers is not None:
            self.tiers.close()
        if self._mover is not None:
            self._mover.close()
        # Then torch may give the memory to others.
        self._order.settle()

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Waits until the levels have kept all that was handed to them. False: not by then."""
        return self.tiers is None or self.tiers.flush(timeout_s)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
