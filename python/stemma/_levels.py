"""The levels that a store or tiers consist of: host memory, disks, shared directories, Redis."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum
from typing import Union

from stemma import _store_structs as s
from stemma._options import u64


class Write(IntEnum):
    """When a level takes a value."""

    THROUGH = 0
    BACK = 1
    SECOND_USE = 2


KINDS = ("host", "disk", "redis", "shared")


@dataclass(frozen=True)
class Level:
    """One level of a store. `kind` is "host" (this process's memory), "disk" (a directory of this
    machine, for one process at a time), "shared" (a directory that many processes and machines
    use), or "redis".

    `where` is the directory, or the URL of the Redis. `capacity_bytes` is never exceeded; a Redis
    has its own. `max_entry_bytes` 0 is what is usual for the kind. `seal_keys` names a directory of
    keys: what the level keeps is then encrypted. A disk that is idle checks its entries,
    `scrub_bytes_per_second` at most, and removes damaged ones; 0: never.
    """

    kind: str
    capacity_bytes: int = 0
    where: Union[str, os.PathLike[str], None] = None
    write: Write = Write.THROUGH
    promote: bool = True
    max_entry_bytes: int = 0
    seal_keys: Union[str, os.PathLike[str], None] = None
    scrub_bytes_per_second: int = 0


@dataclass(frozen=True)
class Forgotten:
    """What one level forgot. `error` says what kept it from being complete."""

    level: str
    complete: bool
    entries: int
    bytes: int
    error: str


def level_struct(level: Level) -> s.Level:
    """What the C library is told of a level."""
    if level.kind not in KINDS:
        raise ValueError(f"a level is one of {', '.join(KINDS)}, not {level.kind!r}")
    return s.Level(
        kind=KINDS.index(level.kind),
        write=int(level.write),
        promote=bool(level.promote),
        capacity_bytes=u64("capacity_bytes", level.capacity_bytes),
        max_entry_bytes=u64("max_entry_bytes", level.max_entry_bytes),
        where=None if level.where is None else os.fsencode(level.where),
        seal_keys=None if level.seal_keys is None else os.fsencode(level.seal_keys),
        scrub_bytes_per_second=u64("scrub_bytes_per_second", level.scrub_bytes_per_second),
    )
