"""PagedCache: which blocks of an engine's KV memory hold a prompt's prefix."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stemma import _calls, _structs
from stemma._errors import Stale, raise_last
from stemma._handle import Owner
from stemma._lease import CacheHandle, Lease
from stemma._memory import address_of
from stemma._options import (
    Attention,
    Group,
    LookupOptions,
    MediaItem,
    Retain,
    lookup_struct,
    media_array,
    nanoseconds,
    retain_struct,
    u32,
    u64,
)
from stemma._report import CachedPath, Event, Report, Stats, event_of, report_of, stats_of
from stemma._scope import Scope
from stemma._tokens import Tokens, find, give_back, words

if TYPE_CHECKING:
    from types import TracebackType

_cache_lease, _lease_table = _calls.cache_lease, _calls.cache_lease_table
_U32 = np.dtype(np.uint32)


class Pin:
    """The cached part of a prompt, held until it expires or unpin() ends it."""

    __slots__ = ("id", "pinned_tokens")

    def __init__(self, number: int, pinned_tokens: int) -> None:
        self.id = number
        self.pinned_tokens = pinned_tokens


class PagedCache(Owner):
    """The index of an engine's KV blocks.

    The engine owns the memory: `groups` say how many blocks of how many tokens it has. The cache
    says which of them hold the beginning of a prompt, lends others to be written, and chooses what
    to evict.

        cache = stemma.PagedCache([stemma.Group(capacity_blocks=4096, block_tokens=16)])
        scope = stemma.Scope("digest of the weights")
        with cache.lease(scope, tokens) as lease:
            table = lease.block_table()
            ...  # Compute positions from lease.committed on, into the blocks of the table.
            lease.commit(lease.length)

    Threading: thread-safe. Calls on the request path keep the interpreter's lock, since they take
    microseconds; those that look at everything let other threads run.

    fork(): a child cannot use its parent's caches; every call raises Forked.
    """

    _what = "cache"
    _handle: Any  # A CacheHandle, or the object that raises.

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        enabled: bool = True,
        policy: str | None = None,
        budget_bytes: int = 0,
        logits_bytes: int = 0,
        pin_share: float = 0.5,
        quotas: Mapping[int, int] | None = None,
        content_keys: bool = False,
        event_capacity: int = 0,
        index_cells: int = 0,
        stats_window_s: float = 60.0,
    ) -> None:
        """Creates a cache with nothing in it.

        `policy` names the retention policy ("lru" if None). `event_capacity` is how many events are
        kept for observers; 0 means no events. `quotas` maps tenants to bytes of KV.
        """
        groups = list(groups)
        given = (_structs.GroupOptions * len(groups))(
            *(
                _structs.GroupOptions(
                    attention=int(g.attention),
                    block_tokens=u32("block_tokens", g.block_tokens),
                    capacity_blocks=u32("capacity_blocks", g.capacity_blocks),
                    window_tokens=u32("window_tokens", g.window_tokens),
                    sink_tokens=u32("sink_tokens", g.sink_tokens),
                    block_bytes=u64("block_bytes", g.block_bytes),
                )
                for g in groups
            )
        )
        limits = dict(quotas or {})
        listed = (_structs.TenantQuota * len(limits))(
            *(
                _structs.TenantQuota(u32("tenant", t), 0, u64("quota", b))
                for t, b in limits.items()
            )
        )
        options = _structs.Options(
            enabled=bool(enabled),
            groups=given,
            group_count=len(groups),
            budget_bytes=u64("budget_bytes", budget_bytes),
            logits_bytes=u64("logits_bytes", logits_bytes),
            pin_share=pin_share,
            quotas=listed,
            quota_count=len(limits),
            index_cells=u32("index_cells", index_cells),
            content_keys=bool(content_keys),
            event_capacity=u32("event_capacity", event_capacity),
            stats_window_ns=nanoseconds("stats_window_s", stats_window_s),
            policy=None if policy is None else policy.encode(),
        )
        out = c_void_p()
        status = _calls.cache_create(options, byref(out))
        if status:
            raise_last(status)
        assert out.value is not None
        super().__init__(CacheHandle(out.value, _first_block_tokens(groups)))

    def __enter__(self) -> PagedCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the cache. Leases that live stay valid, and the last one takes the rest with it."""
        super().close()

    # ---- Requests -------------------------------------------------------------------------------

    def lease(
        self,
        scope: Scope,
        tokens: Tokens,
        *,
        media: Sequence[MediaItem] | None = None,
        tenant: int = 0,
        draft_tokens: int | None = None,
        fill_to: int = 0,
        lookup: LookupOptions | None = None,
        retain: Retain | None = None,
    ) -> Lease:
        """Finds the longest cached prefix, holds it, and drafts room for the rest; all or nothing.

        `tokens` are an array or a CPU tensor of uint32 or int32 (passed by pointer), of int64
        (narrowed in one pass), or any sequence of numbers. `draft_tokens` is how many positions to
        draft room for now; None is the whole prompt. Raises OutOfBlocks, OverQuota,
        InvalidArgument.
        """
        handle = self._handle
        out = c_uint64()
        if not (media or tenant or fill_to or lookup or retain or draft_tokens is not None):
            address = handle.address
            block_tokens = handle.first_block_tokens
            if block_tokens:  # Nearly every request. One call does it, with its block table.
                at, length, kept, width = find(tokens)
                table = np.empty(-(-length // block_tokens), _U32)
                blocks = c_uint32()
                status = _lease_table(
                    address,
                    scope._address,
                    at,
                    length,
                    width,
                    address_of(table),
                    table.size,
                    _structs.NO_BLOCK,
                    byref(blocks),
                    byref(out),
                )
                del kept
                if status:
                    raise_last(status)
                return Lease(out.value, handle, table)
        prompt, keep = _prompt(tokens, media)
        options = None
        if tenant or fill_to or draft_tokens is not None or lookup or retain:
            options = _structs.LeaseOptions(
                tenant=u32("tenant", tenant),
                draft_tokens=_structs.ALL
                if draft_tokens is None
                else u32("draft_tokens", draft_tokens),
                fill_to=u32("fill_to", fill_to),
            )
            if lookup is not None:
                options.lookup = ctypes.pointer(lookup_struct(lookup))
            if retain is not None:
                options.retain = ctypes.pointer(retain_struct(retain))
        status = _cache_lease(handle.address, scope._pointer, prompt, options, byref(out))
        give_back(keep)
        if status:
            raise_last(status)
        return Lease(out.value, handle, None)

    def lookup(
        self,
        scope: Scope,
        tokens: Tokens,
        *,
        media: Sequence[MediaItem] | None = None,
        options: LookupOptions | None = None,
    ) -> Report:
        """What a lease would reuse now, without taking anything."""
        prompt, keep = _prompt(tokens, media)
        out = _structs.Report()
        given = None if options is None else lookup_struct(options)
        self._call(_calls.cache_lookup, scope._pointer, prompt, given, out)
        give_back(keep)
        return report_of(out)

    def pin(
        self,
        scope: Scope,
        tokens: Tokens,
        ttl_s: float,
        *,
        media: Sequence[MediaItem] | None = None,
    ) -> Pin:
        """Holds the cached part of a prompt for `ttl_s` seconds. Raises OverPinShare."""
        prompt, keep = _prompt(tokens, media)
        out = _structs.Pin()
        self._call(_calls.cache_pin, scope._pointer, prompt, nanoseconds("ttl_s", ttl_s), out)
        give_back(keep)
        return Pin(out.id, out.pinned_tokens)

    def unpin(self, pin: Pin) -> bool:
        """Ends a pin. False: it had expired."""
        try:
            self._call(_calls.cache_unpin, pin.id)
        except Stale:
            if self.closed:
                raise
            return False
        return True

    def end_session(self, session: int) -> None:
        """The conversation is over: what it used last, if nobody used it since, goes early."""
        self._call(_calls.cache_end_session, u64("session", session))

    def set_quota(self, tenant: int, quota_bytes: int) -> None:
        """Changes the quota of a tenant that had one when the cache was created."""
        self._call(_calls.cache_set_quota, u32("tenant", tenant), u64("quota_bytes", quota_bytes))

    def tenant_bytes(self, tenant: int) -> int:
        """KV bytes that a tenant has: its drafts and cached blocks."""
        out = c_uint64()
        self._call(_calls.cache_tenant_bytes, u32("tenant", tenant), byref(out))
        return out.value

    def tenant_of(self, scope: Scope) -> int | None:
        """Who pays for a scope; None when nothing of it is cached."""
        known, tenant = c_uint32(), c_uint32()
        self._call(_calls.cache_tenant_of, scope._pointer, byref(known), byref(tenant))
        return tenant.value if known.value else None

    # ---- Forgetting -----------------------------------------------------------------------------

    def truncate(
        self, scope: Scope, tokens: Tokens, keep: int, *, media: Sequence[MediaItem] | None = None
    ) -> int:
        """Forgets how the prompt goes on from the block that holds position `keep`. Returns how
        many blocks cannot be found any more."""
        prompt, words_kept = _prompt(tokens, media)
        out = c_uint32()
        self._call(_calls.cache_truncate, scope._pointer, prompt, u32("keep", keep), byref(out))
        give_back(words_kept)
        return out.value

    def drop_scope(self, scope: Scope) -> int:
        """Forgets a whole scope. Returns how many blocks cannot be found any more."""
        out = c_uint32()
        self._call(_calls.cache_drop_scope, scope._pointer, byref(out))
        return out.value

    def reset(self, *, defer: bool = False) -> None:
        """Forgets everything. While leases live it raises Busy, or with `defer` lets what they use
        go when they are released."""
        self._call(_calls.cache_reset, int(defer))

    def evict(self, blocks: int) -> int:
        """Evicts up to `blocks` blocks by the policy's choice. Returns how many went."""
        out = c_uint32()
        self._call(_calls.cache_evict, u32("blocks", blocks), byref(out))
        return out.value

    def poll(self) -> int:
        """Settles releases whose fences have signalled. Returns how many."""
        out = c_uint32()
        self._call(_calls.cache_poll, byref(out))
        return out.value

    # ---- What there is --------------------------------------------------------------------------

    def stats(self) -> Stats:
        """A consistent snapshot of all counters."""
        out = _structs.Stats()
        self._call(_calls.cache_stats, out)
        return stats_of(out)

    def branch_points(
        self, scope: Scope, tokens: Tokens, *, media: Sequence[MediaItem] | None = None
    ) -> NDArray[np.uint32]:
        """Depths of the prompt's cached path at which cached prompts part, ascending."""
        prompt, keep = _prompt(tokens, media)
        count = c_size_t(16)
        while True:  # The number may grow between two calls.
            depths = np.empty(count.value, np.uint32)
            status = _calls.cache_branch_points(
                self._handle.address,
                scope._pointer,
                prompt,
                depths.ctypes.data if depths.size else None,
                depths.size,
                byref(count),
            )
            if status == 0 and count.value <= depths.size:
                give_back(keep)
                return depths[: count.value]
            if status and count.value <= depths.size:
                raise_last(status)

    def contents(self) -> list[CachedPath]:
        """Every path that is cached. Looks at everything."""
        paths: list[CachedPath] = []

        def each(_: object, path: Any) -> None:
            c = path.contents
            paths.append(CachedPath(bytes(c.scope.digest), c.tokens, bool(c.held)))

        self._call(_calls.cache_contents, _structs.PathFunction(each), None)
        return paths

    def events(self, since: int = 0, limit: int = 65536) -> tuple[list[Event], int]:
        """Events from number `since` on, at most `limit`, and the number to ask for next. A first
        event with a larger number than asked for shows that older ones are not kept any more."""
        events: list[Event] = []
        next_one = c_uint64()
        self._call(
            _calls.cache_events,
            u64("since", since),
            u32("limit", limit),
            _structs.EventFunction(lambda _, event: events.append(event_of(event.contents))),
            None,
            byref(next_one),
        )
        return events, next_one.value

    def event_dump(self) -> tuple[list[Event], int]:
        """Everything cached at one instant, as `stored` events, and the number of the next
        event."""
        events: list[Event] = []
        next_one = c_uint64()
        self._call(
            _calls.cache_event_dump,
            _structs.EventFunction(lambda _, event: events.append(event_of(event.contents))),
            None,
            byref(next_one),
        )
        return events, next_one.value

    def dump(self) -> bytes:
        """The whole index, without KV bytes."""
        taken: list[bytes] = []

        def take(_: object, address: Any, size: int) -> None:
            taken.append(ctypes.string_at(address, size))

        self._call(_calls.cache_dump, _structs.BytesFunction(take), None)
        return taken[0]

    def load(self, dumped: bytes) -> None:
        """Loads what dump() gave into an empty, equally configured cache. Raises Corrupt,
        WrongState."""
        raw = bytes(dumped)
        self._call(_calls.cache_load, raw, len(raw))

    def check_invariants(self) -> None:
        """Stops the process with a description if the books do not balance. For tests."""
        self._call(_calls.cache_check_invariants)

    def _call(self, function: Any, *arguments: Any) -> None:
        handle = self._handle  # Held during the call, so that close() waits for it.
        status = function(handle.address, *arguments)
        if status:
            raise_last(status)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<stemma.PagedCache, {state}>"


def _first_block_tokens(groups: Sequence[Group]) -> int:
    return 0 if groups[0].attention == Attention.RECURRENT else groups[0].block_tokens


def _prompt(
    tokens: Tokens, media: Sequence[MediaItem] | None
) -> tuple[_structs.Prompt, object]:
    """The prompt for C, and what is to be given back once it was used."""
    address, count, keep = words(tokens)
    if not media:
        return _structs.Prompt(address, count), keep
    return _structs.Prompt(address, count, media_array(media), len(media)), keep
