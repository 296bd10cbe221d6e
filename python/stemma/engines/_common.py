"""What the plug-ins have in common: the levels of a store, as engines' configurations write
them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stemma._errors import InvalidArgument
from stemma._store import Level, Store, Write

_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_bytes(amount: int | float | str) -> int:
    """A number of bytes, or text such as "40GB" (powers of 1000) or "40GiB" (of 1024)."""
    if isinstance(amount, (int, float)) and not isinstance(amount, bool):
        return int(amount)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", str(amount))
    if found is None:
        raise InvalidArgument(
            f"{amount!r} is no amount of memory; write 40GB, 40GiB or a number of bytes"
        )
    units = _BINARY if found.group(3) else _UNITS
    return int(float(found.group(1)) * units[found.group(2)])


def _level(spec: Mapping[str, Any]) -> Level:
    known = dict(spec)
    try:
        kind = known.pop("kind")
    except KeyError:
        raise InvalidArgument("a level needs a `kind`: host, disk, shared or redis") from None
    write = str(known.pop("write", "through"))
    if write.upper() not in Write.__members__:
        raise InvalidArgument(f"write is {write!r}; it must be through, back or second_use")
    promote = known.pop("promote", True)
    if not isinstance(promote, bool):
        raise InvalidArgument(f"promote is {promote!r}; it must be true or false")
    level = Level(
        kind=kind,
        capacity_bytes=parse_bytes(known.pop("capacity", 0)),
        where=known.pop("where", None),
        write=Write[write.upper()],
        promote=promote,
        max_entry_bytes=parse_bytes(known.pop("max_entry", 0)),
        seal_keys=known.pop("seal_keys", None),
        scrub_bytes_per_second=parse_bytes(known.pop("scrub", 0)),
    )
    if known:
        raise InvalidArgument(
            f"a level has no {', '.join(sorted(known))}; there are kind, capacity, where, write, "
            "promote, max_entry, seal_keys and scrub"
        )
    return level


def levels_of(
    path: str | None, capacity: int | float | str | None, levels: Sequence[Mapping[str, Any]] | None
) -> list[Level]:
    """The levels that a configuration names: one directory with a capacity, or a list of levels."""
    if (path is None) == (levels is None):
        raise InvalidArgument("give either `path` and `capacity`, or `levels`")
    if levels is not None:
        if capacity is not None:
            raise InvalidArgument("with `levels` each level has its own `capacity`")
        return [_level(one) for one in levels]
    if capacity is None:
        raise InvalidArgument("`path` needs a `capacity`, such as \"100GB\": it is never exceeded")
    return [Level("disk", parse_bytes(capacity), path)]


def with_room_for(levels: Sequence[Level], entry_bytes: int) -> list[Level]:
    """The levels, with entries of this size allowed on disks that name no size of their own, or
    half of what a small disk has. Redis keeps its limit: larger values cost its server dearly."""
    return [
        dataclasses.replace(
            one, max_entry_bytes=min(max(8 << 20, entry_bytes + 4096), one.capacity_bytes // 2)
        )
        if one.kind == "disk" and one.max_entry_bytes == 0
        else one
        for one in levels
    ]


def knows_at_once(levels: Sequence[Level]) -> bool:
    """Whether lookup() knows all that the levels have."""
    return all(one.kind in ("host", "disk") for one in levels)


def safe_name(text: str) -> str:
    """`text` as a part of a namespace's name, with a few digits of its hash where it had to be
    changed."""
    clean = re.sub(r"[^A-Za-z0-9._\-/:@+]", "_", text)
    if clean == text and len(clean) <= 48:
        return clean
    return f"{clean[-36:]}.{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def short_key(key: str) -> bytes:
    """32 bytes for a name of any length."""
    return hashlib.sha256(key.encode()).digest()


def open_store(levels: Sequence[Level], timeout_s: float, **limits: Any) -> Store:
    """A store whose questions to levels are bounded by the same deadline as its batches. Folders on
    the way to a directory are made."""
    for level in levels:
        if level.kind in ("disk", "shared") and level.where is not None:
            os.makedirs(os.path.dirname(os.path.abspath(level.where)), exist_ok=True)
    return Store(
        levels,
        timeout_s=timeout_s,
        query_s=min(timeout_s, 0.5),
        load_s=timeout_s,
        store_s=timeout_s,
        **limits,
    )
