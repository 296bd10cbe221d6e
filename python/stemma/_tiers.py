"""PagedTiers: host memory, disks and servers under a PagedCache."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Sequence
from ctypes import byref, c_uint32, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stemma import _store_structs as store
from stemma import _structs
from stemma import _tiers_structs as s
from stemma._cache import PagedCache, _prompt
from stemma._errors import InvalidArgument, StemmaError, raise_last
from stemma._handle import Handle, Owner
from stemma._lease import Lease
from stemma._levels import Forgotten, Level, level_struct
from stemma._options import DEFAULT_PRIORITY, Group, nanoseconds, number, u32, u64
from stemma._scope import Scope
from stemma._tokens import Tokens, give_back

if TYPE_CHECKING:
    from types import TracebackType


@dataclass(frozen=True)
class Restored:
    """What a restore did, in tokens of the prompt: how many the cache had, how many more some
    level had, how many of these are in the cache now, and how many of these each level gave."""

    cached_tokens: int
    stored_tokens: int
    restored_tokens: int
    level_tokens: tuple[int, ...]
    hold: Lease | None  #: Keeps them until the request has its own lease; then release it.


@dataclass(frozen=True)
class LevelCounts:
    """One level: what it has now, and what became of entries since it was opened."""

    name: str
    open: bool
    entries: int
    used_bytes: int
    capacity_bytes: int
    hits: int
    hit_bytes: int
    puts: int
    put_bytes: int
    too_slow: int
    dropped: int
    lost: int
    corrupt: int
    failed: int
    evictions: int


class _TiersHandle(Handle):
    """The Handle of paged tiers and their stack. What moves the bytes lives as long."""

    __slots__ = ("mover", "stack")

    def __init__(self, address: int, stack: int, mover: object) -> None:
        super().__init__(address, int)  # __del__() ends it.
        self.stack = stack
        self.mover = mover

    def __del__(
        self, _tiers: Any = s.calls, _store: Any = store.calls
    ) -> None:
        if not self.forked:
            _tiers().destroy(self.address)
            _store().stack_destroy(self.stack)


class PagedTiers(Owner):
    """Levels, fastest first, that keep what a PagedCache evicts, and what a process leaves behind.

        tiers = stemma.PagedTiers(
            levels, groups, layout=mover.layout, io=mover.block_io(), mover=mover
        )
        restored = tiers.restore(cache, scope, tokens)
        with cache.lease(scope, tokens) as lease:
            ...  # Release restored.hold; compute; commit.
            tiers.store(scope, tokens, lease)

    Bytes move through `io`, C functions that read and write blocks: no Python runs for them. What
    is damaged or comes too late is computed again.

    Threading: thread-safe. fork(): a child cannot use its parent's tiers; every call raises Forked.
    """

    _what = "tiers"
    _handle: Any

    def __init__(
        self,
        levels: Sequence[Level],
        groups: Sequence[Group],
        *,
        layout: int,
        io: s.BlockIo,
        mover: object = None,
        keep_words: bool = False,
        query_s: float = 0.05,
        load_s: float = 5.0,
        store_s: float = 10.0,
        queue_bytes: int = 256 << 20,
        transfer_bytes: int = 0,
    ) -> None:
        """Opens the levels. `groups` are the cache's, with block_bytes; `layout` is a fingerprint
        of how a block's bytes are arranged; `mover` is kept alive as long as `io` is used. Raises
        InvalidArgument, Busy (another process has a directory), Corrupt (a directory is not a
        store)."""
        for n, group in enumerate(groups):
            if not group.block_bytes:
                raise InvalidArgument(
                    f"group {n} has no block_bytes; tiers must know how large it is", n
                )
        listed = (store.Level * max(1, len(levels)))(*(level_struct(one) for one in levels))
        options = store.StackOptions(
            prefetch_entries=4096,
            levels=listed,
            level_count=len(levels),
            query_ns=nanoseconds("query_s", query_s),
            load_ns=nanoseconds("load_s", load_s),
            store_ns=nanoseconds("store_s", store_s),
            queue_bytes=u64("queue_bytes", queue_bytes),
            transfer_bytes=u64("transfer_bytes", transfer_bytes),
        )
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
        limits = s.PagedTiersOptions(
            keep_words=bool(keep_words),
            groups=given,
            group_count=len(groups),
            layout=u64("layout", layout),
        )
        limits.io.contents = io
        stack, out = c_void_p(), c_void_p()
        status = store.calls().stack_create(options, byref(stack))
        if status:
            raise_last(status)
        assert stack.value is not None
        status = s.calls().create(stack.value, limits, byref(out))
        if status:
            try:
                raise_last(status)
            finally:
                store.calls().stack_destroy(stack.value)
        assert out.value is not None
        self._levels = len(levels)
        super().__init__(_TiersHandle(out.value, stack.value, mover))
        _open.add(self)

    def __enter__(self) -> PagedTiers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, *, flush_s: float = 10.0) -> None:
        """Flushes, at most `flush_s`, then ends it."""
        if not self.closed and flush_s > 0:
            try:
                self.flush(flush_s)
            except StemmaError:
                pass
        super().close()

    # ---- Requests -------------------------------------------------------------------------------

    def restore(
        self, cache: PagedCache, scope: Scope, tokens: Tokens, *, tenant: int = 0
    ) -> Restored:
        """Brings more of the prompt than is cached back into the cache. Waits for the levels, no
        longer than computing would take. Other Python threads run meanwhile."""
        prompt, keep = _prompt(tokens, None)
        options = _structs.LeaseOptions(
            tenant=u32("tenant", tenant), draft_tokens=_structs.ALL
        )
        out = s.Restored()
        handle, under = self._handle, cache._handle
        status = s.calls().restore(
            handle.address, under.address, scope._pointer, prompt, options, out
        )
        give_back(keep)
        if status:
            raise_last(status)
        hold = Lease(out.hold, under, None) if out.hold else None
        return Restored(
            out.cached_tokens,
            out.stored_tokens,
            out.restored_tokens,
            tuple(out.level_tokens[: self._levels]),
            hold,
        )

    def prefetch(self, cache: PagedCache, scope: Scope, tokens: Tokens) -> None:
        """Soon brings what is stored of the prompt up to the first level; for requests in a
        queue."""
        prompt, keep = _prompt(tokens, None)
        handle, under = self._handle, cache._handle
        status = s.calls().prefetch(handle.address, under.address, scope._pointer, prompt)
        give_back(keep)
        if status:
            raise_last(status)

    def store(
        self,
        scope: Scope,
        tokens: Tokens,
        lease: Lease,
        *,
        begin: int = 0,
        priority: int = DEFAULT_PRIORITY,
    ) -> int:
        """Stores what a level wants of positions [begin, committed) of the lease; `tokens` are its
        tokens. Pass each position once per request. Returns how many blocks were handed over."""
        prompt, keep = _prompt(tokens, None)
        out = c_uint32()
        handle = self._handle
        status = s.calls().store(
            handle.address,
            scope._pointer,
            prompt,
            lease._id(),
            u32("begin", begin),
            number("priority", priority, 100),
            byref(out),
        )
        give_back(keep)
        if status:
            raise_last(status)
        return out.value

    def make_room(self, cache: PagedCache, positions: int | None = None) -> int:
        """Evicts until `positions` positions can be drafted (None: everything), and writes what
        goes to the levels that write back. Returns how many blocks were handed over."""
        out = c_uint32()
        handle, under = self._handle, cache._handle
        wanted = _structs.ALL if positions is None else u32("positions", positions)
        status = s.calls().make_room(handle.address, under.address, wanted, byref(out))
        if status:
            raise_last(status)
        return out.value

    # ---- What there is --------------------------------------------------------------------------

    def forget(self, scope: Scope | None, *, timeout_s: float = 30.0) -> list[Forgotten]:
        """Removes everything of a scope from all levels; None: everything of this layout. Drop the
        scope in the cache first."""
        purged = (store.LevelPurged * s.MOST_LEVELS)()
        for one in purged:
            one.struct_size = store.sizeof_purged
        complete = c_uint32()
        handle = self._handle
        status = s.calls().forget(
            handle.address,
            None if scope is None else scope._pointer,
            None,
            nanoseconds("timeout_s", timeout_s),
            None,
            None,
            purged,
            self._levels,
            byref(complete),
        )
        if status:
            raise_last(status)
        return [
            Forgotten(p.name.decode(), bool(p.complete), p.entries, p.bytes, p.error.decode())
            for p in purged[: self._levels]
        ]

    def prefilled(self, tokens: int, seconds: float) -> None:
        """Says how long computing took: this decides whether loading is worth it."""
        handle = self._handle
        status = s.calls().prefilled(
            handle.stack, u32("tokens", tokens), nanoseconds("seconds", seconds)
        )
        if status:
            raise_last(status)

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Waits until all that was stored is kept as durably as the levels can. False: not by
        then."""
        done = c_uint32()
        handle = self._handle
        handle.check()
        status = s.calls().flush(handle.stack, nanoseconds("timeout_s", timeout_s), byref(done))
        if status:
            raise_last(status)
        return bool(done.value)

    def levels(self) -> list[LevelCounts]:
        """Counters of each level."""
        handle = self._handle
        found = []
        for level in range(self._levels):
            out = store.LevelStats()
            status = store.calls().stack_level_stats(handle.stack, level, out)
            if status:
                raise_last(status)
            names = list(LevelCounts.__dataclass_fields__)[2:]
            counts = {name: int(getattr(out, name)) for name in names}
            found.append(LevelCounts(name=out.name.decode(), open=bool(out.open), **counts))
        return found


_open: weakref.WeakSet[PagedTiers] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Tiers that are open at the end are flushed and closed while Python still runs."""
    for tiers in list(_open):
        tiers.close()
