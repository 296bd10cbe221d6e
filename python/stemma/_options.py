"""What callers say about caches and requests, as plain values, and what becomes of it in C."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from stemma import _structs
from stemma._errors import InvalidArgument

DEFAULT_PRIORITY = 35


class Attention(IntEnum):
    """Which positions a layer group needs to continue."""

    FULL = 0  #: All positions before.
    WINDOW = 1  #: The last `window_tokens`, and the first `sink_tokens`.
    RECURRENT = 2  #: One state, right at one depth; blocks are checkpoint slots.


class Phase(IntEnum):
    """Where a session stands."""

    ENDED = 0
    UNKNOWN = 1
    ACTIVE = 2


class Finish(IntEnum):
    """How a request ended."""

    UNKNOWN = 0
    END_TURN = 1
    TOOL_USE = 2
    LENGTH = 3
    CANCELLED = 4


class MediaKind(IntEnum):
    """What a media item is."""

    IMAGE = 1
    AUDIO = 2
    VIDEO = 3
    OTHER = 4


class MediaItem:
    """Something that stands at [offset, offset + length) of a prompt and cannot be split. `digest`
    has 16 bytes of its content's hash. The tokens under it are ignored."""

    __slots__ = ("causal", "digest", "kind", "length", "offset")

    def __init__(
        self,
        offset: int,
        length: int,
        digest: bytes,
        kind: MediaKind = MediaKind.IMAGE,
        causal: bool = False,
    ) -> None:
        if len(digest) != 16:
            raise ValueError(f"a media item's digest has 16 bytes, not {len(digest)}")
        self.offset = offset
        self.length = length
        self.digest = bytes(digest)
        self.kind = kind
        self.causal = causal


@dataclass(frozen=True)
class Group:
    """A layer group: `capacity_blocks` blocks of `block_tokens` positions that the engine has
    memory for.

    `block_bytes` are the KV bytes of a block, for budgets and reports. A window group also has
    `window_tokens`, how many positions before its own a position sees, and perhaps `sink_tokens`.
    """

    capacity_blocks: int
    block_tokens: int = 16
    attention: Attention = Attention.FULL
    window_tokens: int = 0
    sink_tokens: int = 0
    block_bytes: int = 0


@dataclass(frozen=True)
class LookupOptions:
    """How a prompt is looked up. `at_most` limits how many positions are reused; at least
    `evaluate_at_least` units at the end are computed again."""

    at_most: int | None = None
    evaluate_at_least: int = 1
    read: bool = True
    write: bool = True
    allow_copy: bool = True
    want_logits: bool = False


@dataclass(frozen=True)
class PriorityRange:
    """A priority for the blocks whose first position lies in [begin, end). `end` None: all that
    follow."""

    begin: int
    end: int | None
    priority: int
    ttl_s: float | None = None


@dataclass(frozen=True)
class Retain:
    """What a request says about the blocks it leaves behind. `priority` 0 goes first and 100 last;
    after `ttl_s` seconds it falls back to the default. `session` is a number of the caller's, or
    0."""

    priority: int = DEFAULT_PRIORITY
    ttl_s: float | None = None
    ranges: Sequence[PriorityRange] = ()
    session: int = 0
    phase: Phase = Phase.UNKNOWN
    finish: Finish = Finish.UNKNOWN
    session_ttl_s: float | None = None
    will_return: bool = False
    expected_return_s: float = 0.0


def number(name: str, value: int, most: int) -> int:
    """`value`, if a field of C can hold it. ctypes would cut it without a word."""
    value = int(value)
    if not 0 <= value <= most:
        raise InvalidArgument(f"{name} is {value}; it must be from 0 to {most}", None)
    return value


def u32(name: str, value: int) -> int:
    """`value`, if 32 bits hold it."""
    return number(name, value, 0xFFFF_FFFF)


def u64(name: str, value: int) -> int:
    """`value`, if 64 bits hold it."""
    return number(name, value, 0xFFFF_FFFF_FFFF_FFFF)


def nanoseconds(name: str, seconds: float | None) -> int:
    """Seconds as C counts them; None is never."""
    if seconds is None:
        return _structs.NEVER
    if not 0 <= seconds < 1.8e10:
        raise InvalidArgument(
            f"{name} is {seconds} seconds; give 0 or more, or None for no limit", None
        )
    return round(seconds * 1e9)


def lookup_struct(options: LookupOptions) -> _structs.LookupOptions:
    """`options` for C."""
    return _structs.LookupOptions(
        at_most=_structs.ALL if options.at_most is None else u32("at_most", options.at_most),
        evaluate_at_least=u32("evaluate_at_least", options.evaluate_at_least),
        read=bool(options.read),
        write=bool(options.write),
        allow_copy=bool(options.allow_copy),
        want_logits=bool(options.want_logits),
    )


def retain_struct(retain: Retain) -> _structs.Retain:
    """`retain` for C."""
    ranges = (_structs.PriorityRange * len(retain.ranges))(
        *(
            _structs.PriorityRange(
                u32("begin", one.begin),
                _structs.ALL if one.end is None else u32("end", one.end),
                u32("priority", one.priority),
                0,
                nanoseconds("ttl_s", one.ttl_s),
            )
            for one in retain.ranges
        )
    )
    return _structs.Retain(
        priority=u32("priority", retain.priority),
        ttl_ns=nanoseconds("ttl_s", retain.ttl_s),
        ranges=ranges,
        range_count=len(retain.ranges),
        session=u64("session", retain.session),
        phase=int(retain.phase),
        finish=int(retain.finish),
        session_ttl_ns=nanoseconds("session_ttl_s", retain.session_ttl_s),
        will_return=bool(retain.will_return),
        expected_return_ns=nanoseconds("expected_return_s", retain.expected_return_s),
    )


def media_array(media: Sequence[MediaItem]) -> ctypes.Array[_structs.MediaItem]:
    """`media` for C."""
    items = (_structs.MediaItem * len(media))()
    for item, one in zip(items, media):
        item.kind = int(one.kind)
        item.offset = u32("offset", one.offset)
        item.length = u32("length", one.length)
        item.causal = bool(one.causal)
        ctypes.memmove(item.digest, one.digest, 16)
    return items
