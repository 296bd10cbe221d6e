"""Mover: brings blocks from host memory into an engine's pages and back, on a CPU or a CUDA
device."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from typing import Any

from stemma import _library, _structs
from stemma._calls import declare
from stemma._errors import InvalidArgument, raise_last
from stemma._handle import Handle, Owner
from stemma._options import u32, u64
from stemma._tiers_structs import BlockIo

CPU = -1
MOST_DIMS = 4
NO_TOKENS = 0xFFFF_FFFF
NO_STREAM = 0xFFFF_FFFF_FFFF_FFFF


class MoverPlane(Structure):
    _fields_ = [
        ("base", c_uint64),
        ("page_stride", c_uint64),
        ("run_bytes", c_uint64),
        ("layer", c_uint32),
        ("dim_count", c_uint32),
        ("dim_size", c_uint64 * MOST_DIMS),
        ("dim_stride", c_uint64 * MOST_DIMS),
        ("token_dim", c_uint32),
        ("reserved", c_uint32),
    ]


class MoverGroup(Structure):
    _fields_ = [
        ("planes", POINTER(MoverPlane)),
        ("plane_count", c_size_t),
        ("pages", c_uint32),
        ("reserved", c_uint32),
    ]


class MoverOptions(_structs.Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("device", c_int32),
        ("groups", POINTER(MoverGroup)),
        ("group_count", c_size_t),
        ("threads", c_uint32),
        ("thread_blocks", c_uint32),
        ("arena_bytes", c_uint64),
        ("batch_from_bytes", c_uint64),
        ("ring_bytes", c_uint64),
    ]


class MoverStats(_structs.Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("running", c_uint32),
        *(
            (name, c_uint64)
            for name in (
                "loads stores copies load_bytes store_bytes copy_bytes staged_bytes batched_bytes "
                "wrong_blocks ring_waits batch_from_bytes arena_bytes arena_taken_bytes"
            ).split()
        ),
        ("device", c_char * 64),
    ]


@dataclass(frozen=True)
class Plane:
    """Where the bytes of one tensor of every page lie: page p begins at base + p * page_stride,
    and has `run_bytes` bytes there."""

    base: int
    page_stride: int
    run_bytes: int
    layer: int


class _Calls:
    """The functions of libstemma_mover.so."""

    def __init__(self) -> None:
        library = _library.load("stemma_mover")
        waiting, quick = library.waiting, library.quick
        self.has_cuda = quick.stemma_mover_has_cuda
        self.has_cuda.argtypes, self.has_cuda.restype = [], c_int32
        self.device_count = waiting.stemma_mover_device_count
        self.device_count.argtypes, self.device_count.restype = [], c_uint32
        self.create = declare(
            waiting.stemma_mover_create, POINTER(MoverOptions), POINTER(c_void_p)
        )
        self.destroy = declare(waiting.stemma_mover_destroy, c_void_p)
        self.block_bytes = declare(
            quick.stemma_mover_block_bytes, c_void_p, c_uint32, POINTER(c_uint64)
        )
        self.layout = declare(quick.stemma_mover_layout, c_void_p, POINTER(c_uint64))
        self.stats = declare(quick.stemma_mover_stats_get, c_void_p, POINTER(MoverStats))
        self.block_io = declare(
            quick.stemma_mover_block_io, c_void_p, c_uint64, POINTER(BlockIo)
        )


_loaded: Any = None


def _calls() -> Any:
    global _loaded
    if _loaded is None:
        _loaded = _Calls()
    return _loaded


_BUSY = 5
_log = logging.getLogger("stemma")


def _destroy(
    address: int,
    _call: Any = _calls,
    _busy: int = _BUSY,
    _sleep: Any = time.sleep,
    _warn: Any = _log.warning,
) -> None:
    # A cache or tiers may still wait for a copy of theirs: the mover is ended after it.
    for _ in range(1000):
        if _call().destroy(address) != _busy:
            return
        _sleep(0.01)
    _warn("a mover was not ended: its copies have run for 10 seconds; its memory stays taken")


def has_cuda() -> bool:
    """Whether the mover was built with CUDA."""
    return bool(_calls().has_cuda())


class Mover(Owner):
    """Moves the blocks of `groups`, each a list of planes and a number of pages.

    `device` is the number of a CUDA device, or CPU. `arena_bytes` of pinned memory serve host
    memory that the device does not reach. Raises Unsupported without CUDA, InvalidArgument for
    memory of another device.
    """

    _what = "mover"
    _handle: Any

    def __init__(
        self,
        groups: Sequence[tuple[Sequence[Plane], int]],
        *,
        device: int = CPU,
        threads: int = 0,
        thread_blocks: int = 8,
        arena_bytes: int = 0,
    ) -> None:
        if not groups:
            raise InvalidArgument("there are no groups")
        kept = []
        listed = (MoverGroup * len(groups))()
        for n, (planes, pages) in enumerate(groups):
            array = (MoverPlane * len(planes))(
                *(
                    MoverPlane(
                        base=u64("base", p.base),
                        page_stride=u64("page_stride", p.page_stride),
                        run_bytes=u64("run_bytes", p.run_bytes),
                        layer=u32("layer", p.layer),
                        token_dim=NO_TOKENS,
                    )
                    for p in planes
                )
            )
            kept.append(array)
            listed[n].planes = array
            listed[n].plane_count = len(planes)
            listed[n].pages = u32("pages", pages)
        options = MoverOptions(
            device=device,
            groups=listed,
            group_count=len(groups),
            threads=u32("threads", threads),
            thread_blocks=u32("thread_blocks", thread_blocks),
            arena_bytes=u64("arena_bytes", arena_bytes),
            batch_from_bytes=0,
            ring_bytes=4194304,
        )
        out = c_void_p()
        status = _calls().create(options, byref(out))
        if status:
            raise_last(status)
        assert out.value is not None
        super().__init__(Handle(out.value, _destroy))

    @property
    def layout(self) -> int:
        """A fingerprint of how a block's bytes are arranged."""
        out = c_uint64()
        self._call(_calls().layout, byref(out))
        return out.value

    def block_bytes(self, group: int = 0) -> int:
        """How large a block of the group is."""
        out = c_uint64()
        self._call(_calls().block_bytes, u32("group", group), byref(out))
        return out.value

    def block_io(self, after_stream: int = NO_STREAM) -> BlockIo:
        """What PagedTiers takes as `io`. Each copy waits for the work that `after_stream` has
        then."""
        out = BlockIo()
        self._call(_calls().block_io, u64("after_stream", after_stream), out)
        return out

    def stats(self) -> dict[str, Any]:
        """Counters of transfers and bytes, and the name of the device."""
        out = MoverStats()
        self._call(_calls().stats, out)
        found: dict[str, Any] = {
            name: int(getattr(out, name)) for name, *_ in MoverStats._fields_[1:-1]
        }
        found["device"] = out.device.decode()
        return found

    def _call(self, function: Any, *arguments: Any) -> None:
        handle = self._handle
        status = function(handle.address, *arguments)
        if status:
            raise_last(status)
