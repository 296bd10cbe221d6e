"""Store: bytes under keys of the caller's own, in host memory, on disks, in shared directories, in
Redis."""

from __future__ import annotations

import atexit
import itertools
import json
import time
import weakref
from _thread import allocate_lock, start_new_thread
from collections.abc import Sequence
from ctypes import byref, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
from numpy.typing import NDArray

from stemma import _store_structs as s
from stemma._errors import Stale, StemmaError, raise_last
from stemma._handle import Handle, Owner
from stemma._keys import MOST_KEY_BYTES, Keys, Numbers, Parents, give_hints, pack
from stemma._levels import Forgotten, Level, Write, level_struct
from stemma._options import nanoseconds, u32, u64
from stemma._values import Rows, Values, place

if TYPE_CHECKING:
    from types import TracebackType

RESULT = np.dtype([("status", np.uint32), ("levels", np.uint32), ("bytes", np.uint64)])


class Status(IntEnum):
    """What became of an item."""

    PENDING = 0
    DONE = 1
    ABSENT = 2
    BUSY = 3
    REFUSED = 4
    FAILED = 5
    LATE = 6
    CANCELLED = 7


class Op(IntEnum):
    """What a batch does."""

    PUT = 0
    GET = 1
    CONTAINS = 2
    REMOVE = 3
    TOUCH = 4


@dataclass(frozen=True)
class Finished:
    """A batch that ended: how many of its `count` items are done, and how many of these come before
    the first that is not. `results` has status, levels and bytes of each item."""

    op: Op
    count: int
    done: int
    leading: int
    bytes: int
    user: object
    results: NDArray[np.void] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether all items are done."""
        return self.done == self.count

    def statuses(self) -> list[Status]:
        """What became of each item."""
        return [Status(one) for one in self.results["status"].tolist()]


class Batch:
    """A batch that was submitted. The store keeps its memory alive until it has ended."""

    __slots__ = ("_keep", "_results", "_store", "finished", "number", "user")

    def __init__(self, store: Store, user: object, keep: object, results: NDArray[np.void]) -> None:
        self._store = weakref.ref(store)
        self._keep = keep
        self._results = results
        self.user = user
        self.number = 0
        self.finished: Optional[Finished] = None  #: Filled in when drain, wait or cancel named it.

    def wait(self, timeout_s: float | None = None) -> Finished | None:
        """Waits until it has ended; None if it has not by then. Other Python threads run
        meanwhile."""
        if self.finished is None:
            self._live()._wait(self, timeout_s)
        return self.finished

    def cancel(self) -> Finished:
        """Ends it now, as far as it has not. Its memory is not touched any more afterwards."""
        if self.finished is None:
            self._live()._cancel(self)
        assert self.finished is not None
        return self.finished

    def _live(self) -> Store:
        store = self._store()
        if store is None:
            raise Stale("the store of this batch is gone")
        return store

    def _end(self, c: s.StoreFinished) -> None:
        self._keep = None
        self.finished = Finished(
            Op(c.op), c.count, c.done, c.leading, c.bytes, self.user, self._results
        )


def _end_stack(destroy: Any, stack: int, over: Any) -> None:
    try:
        destroy(stack)
    finally:
        over.release()


class _StoreHandle(Handle):
    """The Handle of a store: what its batches use lives until the C store has let go of it."""

    __slots__ = ("pending", "stack", "wait_ns")

    def __init__(self, address: int, stack: int) -> None:
        super().__init__(address, int)  # _destroy() ends it.
        self.stack = stack
        self.pending: dict[int, Batch] = {}
        self.wait_ns = 5_000_000_000

    def __del__(self) -> None:
        if not self.forked:
            self._destroy(self.address)

    def _destroy(
        self,
        address: int,
        _calls: Any = s.calls,
        _begin: Any = start_new_thread,
        _lock: Any = allocate_lock,
        _end: Any = _end_stack,
    ) -> None:
        calls = _calls()
        calls.destroy(address, self.wait_ns)
        self.pending.clear()
        # A stack waits for the reads and writes of its levels. If a disk hangs, that is for ever,
        # so another thread does it, and stays there. (Not a threading.Thread: a garbage collection
        # may call this while `threading` holds its own lock.)
        over = _lock()
        over.acquire()
        try:
            _begin(_end, (calls.stack_destroy, self.stack, over))
        except RuntimeError:  # The interpreter is ending.
            calls.stack_destroy(self.stack)
        else:
            over.acquire(True, min(self.wait_ns / 1e9, 1e6))


class Namespace:
    """Where an engine's values lie in a store: a name and a layout. Entries of other names or
    layouts are never met. Batches start at once and run by themselves; nothing here waits for a
    disk or a network."""

    __slots__ = ("_number", "_store", "layout", "name", "value_bytes")

    def __init__(
        self, store: Store, number_: int, name: str, layout: int, value_bytes: int
    ) -> None:
        self._store = store
        self._number = number_
        self.name = name
        self.layout = layout
        self.value_bytes = value_bytes

    def put(
        self,
        keys: Keys,
        values: Values,
        *,
        priority: int = 35,
        priorities: Numbers | None = None,
        depths: Numbers | None = None,
        parents: Parents | None = None,
        timeout_s: float | None = None,
        user: object = None,
    ) -> Batch:
        """Stores values: one buffer for each key, or Rows of one array. They are read until the
        batch has ended, and must not change before. A key that exists keeps its old value.

        The hints are optional. `priority` is from 0 (evicted first) to 100 and counts for all keys;
        `priorities` gives each key its own instead. `depths` says how many blocks come before each
        key's block in its prompt; of one batch the deeper ones are evicted first. `parents` names
        the key of the block before each one, or None; it is stored with the value."""
        hints = (priority, priorities, depths, parents)
        return self._submit(Op.PUT, keys, values, timeout_s, user, hints)

    def get(
        self, keys: Keys, into: Values, *, timeout_s: float | None = None, user: object = None
    ) -> Batch:
        """Loads values into one writable buffer for each key, or Rows. What is not there, is
        damaged or comes too late is not done; what lies in its buffer is then of no use."""
        return self._submit(Op.GET, keys, into, timeout_s, user)

    def contains(self, keys: Keys, *, timeout_s: float | None = None, user: object = None) -> Batch:
        """Asks all levels which keys they have. lookup() answers at once, for those that know."""
        return self._submit(Op.CONTAINS, keys, None, timeout_s, user)

    def remove(self, keys: Keys, *, timeout_s: float | None = None, user: object = None) -> Batch:
        """Removes entries from all levels."""
        return self._submit(Op.REMOVE, keys, None, timeout_s, user)

    def touch(self, keys: Keys, *, timeout_s: float | None = None, user: object = None) -> Batch:
        """They were used elsewhere: levels keep them as if they had been read."""
        return self._submit(Op.TOUCH, keys, None, timeout_s, user)

    def lookup(self, keys: Keys) -> NDArray[np.uint8]:
        """Which levels have each key (bit l: level l), as far as levels know without asking
        anybody: host memory and disks. Does not wait; about 0.2 us a key."""
        handle = self._store._handle
        packed, sizes, size, count = pack(keys)
        levels = np.empty(count, np.uint8)
        if count == 0:
            return levels
        status = s.calls().lookup(
            handle.address,
            self._number,
            packed,
            sizes.ctypes.data if sizes is not None else None,
            size,
            count,
            levels.ctypes.data,
            None,
        )
        if status:
            raise_last(status)
        return levels

    def forget(self, *, all_layouts: bool = False, timeout_s: float = 30.0) -> list[Forgotten]:
        """Removes all entries of this name, of this layout or of every one. End puts first."""
        handle = self._store._handle
        purged = (s.LevelPurged * 8)()
        for one in purged:
            one.struct_size = s.sizeof_purged
        complete = c_uint32()
        count = self._store._levels
        status = s.calls().forget(
            handle.address,
            self._number,
            int(all_layouts),
            nanoseconds("timeout_s", timeout_s),
            purged,
            count,
            byref(complete),
        )
        if status:
            raise_last(status)
        return [
            Forgotten(p.name.decode(), bool(p.complete), p.entries, p.bytes, p.error.decode())
            for p in purged[:count]
        ]

    def _submit(
        self,
        op: Op,
        keys: Keys,
        values: Values | None,
        timeout_s: float | None,
        user: object,
        hints: tuple[int, Numbers | None, Numbers | None, Parents | None] | None = None,
    ) -> Batch:
        handle: Any = self._store._handle
        address = handle.address
        packed, sizes, size, count = pack(keys)
        results = np.zeros(count, RESULT)
        request = s.StoreRequest(
            op=int(op), name_space=self._number, count=count, keys=packed, key_size=size
        )
        keep: list[object] = [packed, sizes, results]
        if sizes is not None:
            request.key_sizes = sizes.ctypes.data
        if values is not None:
            places, value_sizes, value_size, owner = place(values, count, op is Op.GET)
            request.values = places.ctypes.data
            request.value_size = value_size
            if value_sizes is not None:
                request.value_sizes = value_sizes.ctypes.data
            keep += [places, value_sizes, owner]
        if hints is not None:
            keep += give_hints(request, count, *hints)
        if timeout_s is not None:
            request.timeout_ns = max(1, nanoseconds("timeout_s", timeout_s))
        request.results = results.ctypes.data if count else None
        # Before submit returns, it may have ended and been drained by another thread.
        ticket = next(_tickets)
        request.user = ticket
        batch = Batch(self._store, user, keep, results)
        handle.pending[ticket] = batch
        out = c_uint64()
        status = s.calls().submit(address, request, byref(out))
        if status:
            handle.pending.pop(ticket, None)
            raise_last(status)
        batch.number = out.value
        return batch


_tickets = itertools.count(1)
_TURN_S = 60.0  # The longest that a thread waits for another one to fill in what it was told.


class Store(Owner):
    """A bounded, checked key-value store over a stack of levels, fastest first.

        store = stemma.Store([stemma.Level("disk", capacity_bytes=1 << 40, where="/nvme/kv")])
        blocks = store.namespace("engine/model", layout=stemma.layout_of(model="...", dtype="bf16"))
        batch = blocks.put([key], [value])
        batch.wait()

    Each value is stored with a checksum; what is damaged is not there. Each batch has a deadline,
    so a stalled disk delays nobody for longer. What was stored survives kill -9 of the process.

    Threading: thread-safe. fork(): a child cannot use its parent's stores; every call raises
    Forked.
    """

    _what = "store"

    def __init__(
        self,
        levels: Sequence[Level],
        *,
        load_threads: int = 4,
        store_threads: int = 2,
        most_batches: int = 4096,
        most_items: int = 262144,
        put_bytes: int = 128 << 20,
        timeout_s: float = 10.0,
        query_s: float = 0.05,
        load_s: float = 5.0,
        store_s: float = 10.0,
        queue_bytes: int = 256 << 20,
    ) -> None:
        """Opens the levels. `timeout_s` is the deadline of batches that name none; `query_s`,
        `load_s` and `store_s` bound each question to a level. Raises InvalidArgument, Busy (another
        process has the directory), Corrupt (the directory is not a store)."""
        listed = (s.Level * max(1, len(levels)))(*(level_struct(one) for one in levels))
        options = s.StackOptions(
            prefetch_entries=4096,
            levels=listed,
            level_count=len(levels),
            query_ns=nanoseconds("query_s", query_s),
            load_ns=nanoseconds("load_s", load_s),
            store_ns=nanoseconds("store_s", store_s),
            queue_bytes=u64("queue_bytes", queue_bytes),
            transfer_bytes=0,
        )
        limits = s.StoreOptions(
            load_threads=u32("load_threads", load_threads),
            store_threads=u32("store_threads", store_threads),
            most_batches=u32("most_batches", most_batches),
            most_items=u32("most_items", most_items),
            put_bytes=u64("put_bytes", put_bytes),
            timeout_ns=nanoseconds("timeout_s", timeout_s),
        )
        calls = s.calls()
        stack, out = c_void_p(), c_void_p()
        status = calls.stack_create(options, byref(stack))
        if status:
            raise_last(status)
        assert stack.value is not None
        status = calls.create(stack.value, limits, byref(out))
        if status:
            try:
                raise_last(status)
            finally:
                calls.stack_destroy(stack.value)
        assert out.value is not None
        self._levels = len(levels)
        super().__init__(_StoreHandle(out.value, stack.value))
        _open.add(self)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, *, flush_s: float = 10.0, wait_s: float = 5.0) -> None:
        """Flushes, at most `flush_s`, then ends every batch and the store. Batches that have not
        ended are cancelled. With a level that is stuck it gives up after about `wait_s`, twice:
        once for what waits in it, and once for the level. What a stuck level has open stays open
        until it comes back."""
        if self.closed:
            return
        handle: Any = self._handle
        if flush_s > 0:
            try:
                self.flush(flush_s)
            except StemmaError:
                pass
        handle.wait_ns = nanoseconds("wait_s", wait_s)
        super().close()

    def namespace(self, name: str, *, layout: int = 0, value_bytes: int = 0) -> Namespace:
        """The namespace of a name and a layout; see layout_of(). `value_bytes` is how large each
        value is; 0: any size."""
        out = c_uint32()
        given = s.StoreLayout(
            layout=u64("layout", layout), value_bytes=u64("value_bytes", value_bytes)
        )
        self._call(s.calls().name_space, name.encode(), given, byref(out))
        return Namespace(self, out.value, name, layout, value_bytes)

    def fileno(self) -> int:
        """A file descriptor that is readable while batches that ended wait for drain(). Only poll
        it."""
        out = c_int32()
        self._call(s.calls().event_fd, byref(out))
        return out.value

    def drain(self, most: int = 1024) -> list[Batch]:
        """Batches that ended since the last call, each once, with `finished` filled in. Does not
        wait."""
        handle: Any = self._handle
        ended = (s.StoreFinished * most)()
        count = c_size_t()
        status = s.calls().drain(handle.address, ended, most, byref(count))
        if status:
            raise_last(status)
        batches = []
        for one in ended[: count.value]:
            batch = handle.pending.pop(one.user)
            batch._end(one)
            batches.append(batch)
        return batches

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Waits until all that was put by batches that ended survives a loss of power. False: not
        by then."""
        done = c_uint32()
        self._call(s.calls().flush, nanoseconds("timeout_s", timeout_s), byref(done))
        return bool(done.value)

    def stats(self) -> dict[str, Any]:
        """Counters of the store, of its levels and of its namespaces."""
        handle = self._handle
        count = c_size_t(1 << 16)
        while True:
            text = np.empty(count.value, np.uint8)
            status = s.calls().stats_json(
                handle.address, text.ctypes.data, text.size, byref(count)
            )
            if status == 0:
                found: dict[str, Any] = json.loads(text[: count.value].tobytes())
                return found
            if count.value <= text.size:
                raise_last(status)

    def _wait(self, batch: Batch, timeout_s: float | None) -> None:
        handle: Any = self._handle
        over, ended = c_uint32(), s.StoreFinished()
        wait = nanoseconds("timeout_s", timeout_s)
        status = s.calls().wait(handle.address, batch.number, wait, byref(over), ended)
        self._named(handle, batch, status, bool(over.value), ended)

    def _cancel(self, batch: Batch) -> None:
        handle: Any = self._handle
        ended = s.StoreFinished()
        status = s.calls().cancel(handle.address, batch.number, ended)
        self._named(handle, batch, status, True, ended)

    def _named(
        self, handle: Any, batch: Batch, status: int, over: bool, c: s.StoreFinished
    ) -> None:
        if status == 0 and over:
            handle.pending.pop(c.user, None)
            batch._end(c)
        elif status:
            # Another thread was told of its end and is about to fill it in, unless the store was
            # closed. That takes as long as the thread needs to get its turn.
            try:
                raise_last(status)
            except Stale:
                give_up = time.monotonic() + _TURN_S
                while batch.finished is None:
                    if self.closed or time.monotonic() > give_up:
                        raise
                    time.sleep(0.0001)

    def _call(self, function: Any, *arguments: Any) -> None:
        handle = self._handle
        status = function(handle.address, *arguments)
        if status:
            raise_last(status)


_open: weakref.WeakSet[Store] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stores that are open at the end are flushed and closed while Python still runs."""
    for store in list(_open):
        store.close()


def layout_of(**facts: object) -> int:
    """A layout: a fingerprint of all that decides how a value's bytes are arranged, as model,
    dtype, shape, page size and tensor parallelism. The same facts give the same number in every
    process."""
    import hashlib

    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), default=str)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


__all__ = [
    "MOST_KEY_BYTES",
    "Batch",
    "Finished",
    "Forgotten",
    "Level",
    "Namespace",
    "Op",
    "Rows",
    "Status",
    "Store",
    "Write",
    "layout_of",
]
