"""A connector for LMCache's `native_plugin` adapter, over a stemma.Store.

    {"type": "native_plugin", "module_path": "stemma.engines.lmcache",
     "class_name": "StemmaConnector",
     "adapter_params": {"path": "/nvme/kv", "capacity": "500GB", "layout": "llama-3-8b bf16 tp1"}}

LMCache's own connectors return bytes whose checksum nobody checked; here a damaged object is a
miss. The store is bounded, and each batch has a deadline.

Settings: `path` and `capacity`, or `levels`, a list of {kind, capacity, where, ...}; `layout`, any
text that changes when an object's bytes are arranged otherwise; `max_object`, the largest object
("64MiB"); `namespace`; `timeout_s` of a batch (10); `load_threads`, `store_threads`. LMCache's
`max_capacity_gb` is not needed.

Threading: thread-safe. Nothing waits but close().
"""

from __future__ import annotations

import itertools
import os
import select
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np

from stemma._errors import StemmaError
from stemma._store import Batch, Status, layout_of
from stemma.engines._common import (
    knows_at_once,
    levels_of,
    open_store,
    parse_bytes,
    safe_name,
    short_key,
    with_room_for,
)

# future, whether all went well, why not, and what became of each key (None: nothing to say of
# keys).
Completion = tuple[int, bool, str, Optional[list[bool]]]

_DONE = int(Status.DONE)


class StemmaConnector:
    """What LMCache calls: submit_batch_*() start work and return a number, event_fd() is readable
    while something has ended, drain_completions() says what."""

    def __init__(
        self,
        path: str | None = None,
        capacity: int | float | str | None = None,
        levels: Sequence[Mapping[str, Any]] | None = None,
        layout: str = "",
        max_object: int | str = "64MiB",
        namespace: str = "lmcache",
        timeout_s: float = 10.0,
        load_threads: int = 4,
        store_threads: int = 2,
    ) -> None:
        chosen = with_room_for(levels_of(path, capacity, levels), parse_bytes(max_object))
        self._at_once = knows_at_once(chosen)
        self._store = open_store(
            chosen, timeout_s, load_threads=load_threads, store_threads=store_threads
        )
        self._space = self._store.namespace(
            safe_name(namespace), layout=layout_of(plugin=1, layout=layout)
        )
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._answered: list[Completion] = []
        # Results known at once go through a pipe; one descriptor watches the pipe and the store.
        self._bell, self._ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watch = select.epoll(2)
        self._watch.register(self._store.fileno(), select.EPOLLIN)
        self._watch.register(self._bell, select.EPOLLIN)
        self._closed = False

    def event_fd(self) -> int:
        """A descriptor that is readable while drain_completions() has something to say."""
        return self._watch.fileno()

    def submit_batch_get(self, keys: Sequence[str], buffers: Sequence[Any]) -> int:
        """Loads objects into buffers of exactly their size."""
        buffers = list(buffers)
        sizes = np.fromiter((memoryview(b).nbytes for b in buffers), np.uint64, len(buffers))
        return self._start(
            keys, lambda names, user: self._space.get(names, buffers, user=user), sizes
        )

    def submit_batch_set(self, keys: Sequence[str], buffers: Sequence[Any]) -> int:
        """Stores objects. Buffers must not change until it is over."""
        buffers = list(buffers)
        return self._start(keys, lambda names, user: self._space.put(names, buffers, user=user))

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Asks which objects there are."""
        if self._at_once:
            number = next(self._numbers)
            try:
                found = self._space.lookup([short_key(key) for key in keys])
                self._answer((number, True, "", [bool(one) for one in found]))
            except StemmaError as error:
                self._answer((number, False, str(error), [False] * len(keys)))
            return number
        return self._start(keys, lambda names, user: self._space.contains(names, user=user))

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Removes objects."""
        return self._start(keys, lambda names, user: self._space.remove(names, user=user))

    def drain_completions(self) -> list[Completion]:
        """What has ended since the last call."""
        # Not while close() closes the pipe: its number may be another file's then.
        with self._lock:
            if self._closed:
                return []
            try:
                while os.read(self._bell, 4096):
                    pass
            except BlockingIOError:
                pass
            done, self._answered = self._answered, []
        try:
            done += [self._completion(batch) for batch in self._store.drain()]
        except StemmaError:  # Another thread closes the store.
            pass
        return done

    def close(self) -> None:
        """Flushes and closes the store. Afterwards no buffer is touched."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._watch.close()
            os.close(self._bell)
            os.close(self._ring)
        self._store.close()

    def stats(self) -> dict[str, Any]:
        """Counters of the store and its levels."""
        return self._store.stats()

    def _start(self, keys: Sequence[str], start: Any, sizes: Any = None) -> int:
        number = next(self._numbers)
        if not keys:
            self._answer((number, True, "", []))
            return number
        try:
            start([short_key(key) for key in keys], (number, sizes))
        except (StemmaError, TypeError, ValueError) as error:  # Nothing was done.
            # Too much is in transfer, it is closed, or a buffer cannot be used.
            self._answer((number, False, str(error), [False] * len(keys)))
        return number

    def _answer(self, completion: Completion) -> None:
        with self._lock:
            if self._closed:
                return
            self._answered.append(completion)
            try:
                os.write(self._ring, b"\0")
            except BlockingIOError:  # The pipe is full, so it is readable.
                pass

    @staticmethod
    def _completion(batch: Batch) -> Completion:
        end = batch.finished
        assert end is not None
        user: Any = batch.user
        number, sizes = user
        done = end.results["status"] == _DONE
        if sizes is not None:  # A shorter object has another layout: not the one requested.
            done = done & (end.results["bytes"] == sizes)
        each = done.tolist()
        if end.op.name in ("CONTAINS", "REMOVE"):
            late = [Status.LATE, Status.BUSY, Status.FAILED]
            ok = not np.isin(end.results["status"], late).any()
            return number, bool(ok), "" if ok else "a level did not answer", each
        ok = bool(done.all())
        why = "" if ok else f"{each.count(False)} of {len(each)} objects: {_why(end.results)}"
        return number, ok, why, each


def _why(results: Any) -> str:
    statuses = set(results["status"].tolist()) - {_DONE}
    return ", ".join(sorted(Status(one).name.lower() for one in statuses)) or "another size"
