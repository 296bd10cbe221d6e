"""Stemma, the KV cache of LLM engines, from Python.

`PagedCache` is the index of an engine's KV blocks; `Store` keeps bytes under keys of your own;
`replay` plays a recorded trace through the cache. `PagedTiers` puts levels of storage under a
cache. Arrays of tokens and block tables cross by pointer. Every refusal is a `StemmaError`, with a
sentence that says what to change.
"""

from __future__ import annotations

from stemma import _calls
from stemma._cache import PagedCache, Pin
from stemma._errors import (
    Busy,
    Closed,
    CopyFailed,
    Corrupt,
    Forked,
    InvalidArgument,
    OutOfBlocks,
    OutOfMemory,
    OutOfRange,
    OutOfRoom,
    OverPinShare,
    OverQuota,
    Stale,
    StemmaError,
    Unsupported,
    WrongState,
)
from stemma._lease import NO_BLOCK, BlockCopy, Commit, Lease, Positions
from stemma._mover import Mover, Plane
from stemma._options import (
    DEFAULT_PRIORITY,
    Attention,
    Finish,
    Group,
    LookupOptions,
    MediaItem,
    MediaKind,
    Phase,
    PriorityRange,
    Retain,
)
from stemma._replay import ReplayRow, replay
from stemma._report import CachedPath, Counts, Event, GroupStats, Report, Stats
from stemma._scope import Adapter, Scope
from stemma._store import (
    Batch,
    Finished,
    Forgotten,
    Level,
    Namespace,
    Op,
    Rows,
    Status,
    Store,
    Write,
    layout_of,
)
from stemma._tiers import LevelCounts, PagedTiers, Restored

__version__ = "0.2.0"


def library_version() -> str:
    """The version of the C library that is loaded."""
    found = _calls.version()
    return f"{found.major}.{found.minor}.{found.patch}"


def has_feature(name: str) -> bool:
    """Whether this build, on this machine, has "avx2", "avx512", "sha_ni", "content_keys" or
    "events"."""
    return bool(_calls.has_feature(name.encode()))


__all__ = [
    "DEFAULT_PRIORITY",
    "NO_BLOCK",
    "Adapter",
    "Attention",
    "Batch",
    "BlockCopy",
    "Busy",
    "CachedPath",
    "Closed",
    "Commit",
    "CopyFailed",
    "Corrupt",
    "Counts",
    "Event",
    "Finish",
    "Finished",
    "Forgotten",
    "Forked",
    "Group",
    "GroupStats",
    "InvalidArgument",
    "Lease",
    "Level",
    "LevelCounts",
    "LookupOptions",
    "MediaItem",
    "MediaKind",
    "Mover",
    "Namespace",
    "Op",
    "OutOfBlocks",
    "OutOfMemory",
    "OutOfRange",
    "OutOfRoom",
    "OverPinShare",
    "OverQuota",
    "PagedCache",
    "PagedTiers",
    "Phase",
    "Pin",
    "Plane",
    "Positions",
    "PriorityRange",
    "ReplayRow",
    "Report",
    "Restored",
    "Retain",
    "Rows",
    "Scope",
    "Stale",
    "Stats",
    "Status",
    "StemmaError",
    "Store",
    "Unsupported",
    "Write",
    "WrongState",
    "has_feature",
    "layout_of",
    "library_version",
    "replay",
]
