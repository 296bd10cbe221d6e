"""Leases: a request's hold on everything that it uses."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint32, c_uint64
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from stemma import _calls, _structs
from stemma._errors import Closed, Forked, raise_last
from stemma._handle import Handle
from stemma._memory import Room, address_of, room
from stemma._options import Retain, retain_struct, u32
from stemma._report import Report, report_of
from stemma._tokens import Tokens, give_back, words

if TYPE_CHECKING:
    from types import TracebackType

NO_BLOCK = _structs.NO_BLOCK
_U32 = np.dtype(np.uint32)


_DEFER = 1
_lease_block_table, _lease_release = _calls.lease_block_table, _calls.lease_release


# Its defaults are there even when the names of this module are not, as the interpreter ends.
def _destroy(address: int, _call: Any = _calls.cache_destroy, _defer: int = _DEFER) -> None:
    _call(address, _defer)


class CacheHandle(Handle):
    """The Handle of a cache, with what its leases need to know."""

    __slots__ = ("fences", "first_block_tokens")

    def __init__(self, address: int, first_block_tokens: int) -> None:
        super().__init__(address, _destroy)
        self.first_block_tokens = first_block_tokens  # Of group 0; 0 if it has no block table.
        self.fences: dict[int, Any] = {}


class BlockCopy(NamedTuple):
    """A part-block to copy before its target is read: the first `tokens` positions of block
    `source` of `group`, to block `target`, or into the running state where `target` is None."""

    group: int
    source: int
    target: int | None
    tokens: int


class Commit(NamedTuple):
    """What a commit did: positions now written, blocks that became findable, and how many of these
    somebody else had cached already."""

    committed: int
    published: int
    duplicates: int


class Positions(NamedTuple):
    """Where a lease stands, in positions: reused <= committed <= length <= capacity."""

    reused: int
    committed: int
    length: int
    capacity: int


class Lease:
    """A request's blocks: those it found, held in place, and those it may write.

    Leases come from PagedCache.lease() and end with release(), or with the block of a `with`
    statement. One that is forgotten ends when Python collects it, with a ResourceWarning.

    Threading: one call at a time; a second one raises Busy. A lease may be released on any thread.
    """

    __slots__ = ("_handle", "_number", "_table")

    def __init__(
        self, number: int, handle: CacheHandle, table: NDArray[np.uint32] | None
    ) -> None:
        self._number = number
        self._handle = handle
        self._table = table  # Of group 0, until the lease changes or somebody takes it.

    # ---- Its end --------------------------------------------------------------------------------

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        number = self._number
        if number:
            if self._handle.forked:
                raise Forked("this lease belongs to the parent process")
            self._number = 0
            status = _lease_release(number, None)
            if status:
                self._number = number
                raise_last(status)

    def release(
        self, *, retain: Retain | None = None, fence: Callable[[], bool] | None = None
    ) -> None:
        """Ends the lease: whole blocks stay cached, the committed part of the last one can be
        copied from, drafts go back.

        `retain` replaces what the lease was told. `fence` is asked, cheaply and now and then, until
        it returns true; nothing of the lease is used again before that (`torch.cuda.Event.query` is
        one). It must not call Stemma.
        """
        number = self._take()
        if retain is None and fence is None:
            status = _lease_release(number, None)
        else:
            options = _structs.ReleaseOptions()
            if retain is not None:
                told = retain_struct(retain)
                options.retain = ctypes.pointer(told)
            if fence is not None:
                options.fence = ctypes.pointer(_make_fence(fence, self._handle.fences))
            status = _calls.lease_release(number, options)
        if status:
            self._number = number
            raise_last(status)

    def abandon(self, *, fence: Callable[[], bool] | None = None) -> None:
        """Ends the lease like release(), but what is left of its last block cannot be copied
        from."""
        number = self._take()
        given = None if fence is None else _make_fence(fence, self._handle.fences)
        status = _calls.lease_abandon(number, given)
        if status:
            self._number = number
            raise_last(status)

    @property
    def released(self) -> bool:
        """Whether it has ended."""
        return self._number == 0

    def __del__(
        self,
        _release: Any = _calls.lease_release,
        _warn: Any = warnings.warn,
        _finalizing: Any = sys.is_finalizing,
    ) -> None:
        number = self._number
        if number and not self._handle.forked:
            self._number = 0
            _release(number, None)
            if not _finalizing():
                _warn("a stemma.Lease was forgotten; use `with` or release()", ResourceWarning, 2)

    def _take(self) -> int:
        number = self._id()
        self._number = 0
        return number

    def _id(self) -> int:
        if self._handle.forked:
            raise Forked("this lease belongs to the parent process")
        number = self._number
        if not number:
            raise Closed("this lease was released")
        return number

    # ---- Where it stands ------------------------------------------------------------------------

    @property
    def positions(self) -> Positions:
        """reused, committed, length and capacity, in one call."""
        out = _structs.Positions()
        status = _calls.lease_positions(self._id(), out)
        if status:
            raise_last(status)
        return Positions(out.reused, out.committed, out.length, out.capacity)

    @property
    def reused(self) -> int:
        """Positions that were found in the cache."""
        return self.positions.reused

    @property
    def committed(self) -> int:
        """Positions that are written and findable, or found. Compute from here on."""
        return self.positions.committed

    @property
    def length(self) -> int:
        """Positions whose tokens are known."""
        return self.positions.length

    @property
    def capacity(self) -> int:
        """Positions that there is room for."""
        return self.positions.capacity

    @property
    def report(self) -> Report:
        """What the lookup found, and what is left to do."""
        out = _structs.Report()
        status = _calls.lease_report(self._id(), out)
        if status:
            raise_last(status)
        return report_of(out)

    # ---- Tables ---------------------------------------------------------------------------------

    @overload
    def block_table(self, group: int = ..., *, pad: int = ...) -> NDArray[np.uint32]: ...
    @overload
    def block_table(self, group: int = ..., *, out: Room, pad: int = ...) -> int: ...
    def block_table(
        self, group: int = 0, *, out: Room | None = None, pad: int = NO_BLOCK
    ) -> NDArray[np.uint32] | int:
        """The blocks of `group` that hold [0, capacity), in order; `pad` where one fell out of a
        window.

        Returns a new array of uint32. With `out`, an array or a CPU tensor of 32-bit integers, it
        is written there instead, with `pad` up to its end, and the number of blocks is returned. As
        `pad` give NO_BLOCK (-1 as an int32), or a block that no lease gets: 0 is a block like any
        other.
        """
        table = self._table
        if table is not None and group == 0 and out is None and pad == NO_BLOCK:
            self._table = None
            self._id()
            return table
        return self._filled(_lease_block_table, group, out, pad)

    @overload
    def draft_table(self, group: int = ..., *, pad: int = ...) -> NDArray[np.uint32]: ...
    @overload
    def draft_table(self, group: int = ..., *, out: Room, pad: int = ...) -> int: ...
    def draft_table(
        self, group: int = 0, *, out: Room | None = None, pad: int = NO_BLOCK
    ) -> NDArray[np.uint32] | int:
        """Like block_table(), with `pad` wherever the block is not this lease's own to write."""
        return self._filled(_calls.lease_draft_table, group, out, pad)

    def _filled(
        self, call: Any, group: int, out: Room | None, pad: int
    ) -> NDArray[np.uint32] | int:
        number = self._id()
        count = c_uint32()
        if out is not None:
            address, size = room(out, 4)
            status = call(number, group, address, size, pad & NO_BLOCK, byref(count))
            if status:
                raise_last(status)
            return count.value
        status = _calls.lease_block_count(number, group, byref(count))
        if status:
            raise_last(status)
        table = np.empty(count.value, _U32)
        status = call(number, group, address_of(table), table.size, pad & NO_BLOCK, None)
        if status:
            raise_last(status)
        return table

    @overload
    def slot_mapping(
        self, begin: int, end: int, group: int = ..., *, pad: int = ...
    ) -> NDArray[np.int64]: ...
    @overload
    def slot_mapping(
        self, begin: int, end: int, group: int = ..., *, out: Room, pad: int = ...
    ) -> None: ...
    def slot_mapping(
        self, begin: int, end: int, group: int = 0, *, out: Room | None = None, pad: int = -1
    ) -> NDArray[np.int64] | None:
        """block * block_tokens + offset of each position in [begin, end); `pad` where there is no
        block. With `out`, an array or a CPU tensor of int64 with room for end - begin, it is
        written there."""
        count = u32("end - begin", end - begin)
        target = np.empty(count, np.int64) if out is None else out
        address, size = room(target, 8)
        if size < count:
            raise ValueError(f"out has room for {size} slots; {count} are needed")
        status = _calls.lease_slot_mapping(
            self._id(), group, u32("begin", begin), address, count, pad
        )
        if status:
            raise_last(status)
        return None if out is not None else target  # type: ignore[return-value]

    # ---- Copies ---------------------------------------------------------------------------------

    def copies(self) -> list[BlockCopy]:
        """Part-blocks to copy before anything reads them; then call copies_done()."""
        count = c_size_t()
        number = self._id()
        status = _calls.lease_copies(number, None, 0, byref(count))
        if status == 0 and count.value:
            out = (_structs.BlockCopy * count.value)()
            status = _calls.lease_copies(number, out, count.value, byref(count))
            if status == 0:
                return [
                    BlockCopy(
                        c.group, c.source, None if c.target == NO_BLOCK else c.target, c.tokens
                    )
                    for c in out
                ]
        if status:
            raise_last(status)
        return []

    def copies_done(self) -> None:
        """All copies are done, also where there were none."""
        self._call(_calls.lease_copies_done)

    def copies_failed(self) -> None:
        """They could not be done: the lease steps back to what holds without them."""
        self._call(_calls.lease_copies_failed)

    def shrink_to(self, n: int) -> int:
        """Gives back what was reused beyond `n`. Returns how much is reused now."""
        out = c_uint32()
        self._call(_calls.lease_shrink_to, u32("n", n), byref(out))
        return out.value

    def media_to_process(self) -> NDArray[np.uint32]:
        """Indices of the prompt's media items that are not wholly reused."""
        count = c_size_t()
        self._call(_calls.lease_media_to_process, None, 0, byref(count))
        out = np.empty(count.value, _U32)
        if count.value:
            self._call(_calls.lease_media_to_process, out.ctypes.data, out.size, byref(count))
        return out

    # ---- Progress -------------------------------------------------------------------------------

    def commit(self, n: int) -> Commit:
        """The KV of [0, n) is written: whole blocks before `n` become findable."""
        self._table = None
        out = _structs.Commit()
        status = _calls.lease_commit(self._id(), u32("n", n), out)
        if status:
            raise_last(status)
        return Commit(out.committed, out.published, out.duplicates)

    def extend(self, tokens: Tokens) -> None:
        """Appends tokens, and drafts room for them; all or nothing."""
        address, count, keep = words(tokens)
        self._call(_calls.lease_extend, address, count)
        give_back(keep)

    def reserve(self, positions: int) -> None:
        """Drafts room for [0, positions), whether their tokens are known or not; all or nothing."""
        self._call(_calls.lease_reserve, u32("positions", positions))

    def adopt_canonical(self) -> int:
        """Gives up blocks that somebody else has cached as well; the block table then names theirs.
        Returns how many."""
        out = c_uint32()
        self._call(_calls.lease_adopt_canonical, byref(out))
        return out.value

    def fork(self) -> Lease:
        """Another lease over [0, committed), to be ended like any other."""
        out = c_uint64()
        self._call(_calls.lease_fork, byref(out))
        return Lease(out.value, self._handle, None)

    def rewind(self, n: int) -> None:
        """Forgets positions from `n` on. Below `committed` there may be copies to do again."""
        self._call(_calls.lease_rewind, u32("n", n))

    # ---- Checkpoints and logits -----------------------------------------------------------------

    def draft_checkpoint(self, group: int) -> int:
        """A slot of a recurrent group to save the running state into."""
        out = c_uint32()
        self._call(_calls.lease_draft_checkpoint, u32("group", group), byref(out))
        return out.value

    def commit_checkpoint(self, group: int, depth: int) -> None:
        """The drafted slot holds the state after exactly `depth` positions."""
        self._call(_calls.lease_commit_checkpoint, u32("group", group), u32("depth", depth))

    def hold_checkpoint(self, group: int, at_most: int) -> tuple[int, int] | None:
        """Depth and slot of the deepest checkpoint at or below `at_most`; None where there is
        none."""
        depth, block = c_uint32(), c_uint32()
        self._call(
            _calls.lease_hold_checkpoint,
            u32("group", group),
            u32("at_most", at_most),
            byref(depth),
            byref(block),
        )
        return None if block.value == NO_BLOCK else (depth.value, block.value)

    def attach_logits(self, depth: int, logits: NDArray[np.float32]) -> None:
        """Keeps a copy of the logits after exactly `depth` positions."""
        kept = np.ascontiguousarray(logits, np.float32).ravel()
        self._call(_calls.lease_attach_logits, u32("depth", depth), kept.ctypes.data, kept.size)

    def logits(self) -> NDArray[np.float32] | None:
        """A copy of the logits at the prompt's end, where want_logits found them."""
        address, count = ctypes.c_void_p(), c_size_t()
        self._call(_calls.lease_logits, byref(address), byref(count))
        if not address.value:
            return None
        return np.frombuffer(ctypes.string_at(address.value, 4 * count.value), np.float32).copy()

    def _call(self, function: Any, *arguments: Any) -> None:
        self._table = None
        status = function(self._id(), *arguments)
        if status:
            raise_last(status)

    def __repr__(self) -> str:
        if self._number == 0 or self._handle.forked:
            return "<stemma.Lease, released>"
        return f"<stemma.Lease {self._number:#x}>"


def _make_fence(fence: Callable[[], bool], kept: dict[int, Any]) -> _structs.Fence:
    """A C fence that asks `fence`. It lives in `kept` until `fence` has returned true."""
    if not callable(fence):
        raise TypeError("fence must be callable and return whether the work is over")
    key = 0

    def signalled(_: object) -> int:
        try:
            over = bool(fence())
        except Exception:  # A fence that fails must not free blocks that a kernel may still read.
            sys.excepthook(*sys.exc_info())
            return 0
        if over:
            done.append(key)
        return over

    # A signalled fence cannot be freed during its own call: it is freed when the next one is made.
    done: list[int] = kept.setdefault(0, [])
    for old in done:
        kept.pop(old, None)
    done.clear()
    made = _structs.Fence(_structs.FenceFunction(signalled), None)
    key = id(made)
    kept[key] = made
    return made
