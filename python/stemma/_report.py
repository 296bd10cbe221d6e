"""What caches answer: reports, statistics, events."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemma import _structs

OUTCOMES = ("full_hit", "partial_hit", "miss", "bypassed", "refused")
REASONS = (
    "none",
    "unknown_scope",
    "first_use",
    "too_short",
    "at_most",
    "media",
    "group_hole",
    "no_checkpoint",
    "no_copy",
    "read_off",
    "no_room",
    "gave_up",
)
EVENTS = ("stored", "removed", "cleared")


def _name(names: tuple[str, ...], index: int) -> str:
    return names[index] if index < len(names) else "unknown"


@dataclass(frozen=True)
class Report:
    """What became of one request. Counts are positions.

    `outcome` is one of full_hit, partial_hit, miss, bypassed, refused; `reason` says why no more
    was reused. `limiting_group` is the layer group that cut the match, or None.
    """

    prompt_tokens: int
    matched_tokens: int
    reused_tokens: int
    copied_tokens: int
    to_compute_tokens: int
    checkpoint_would_help_at: int
    limiting_group: int | None
    outcome: str
    reason: str


def report_of(c: _structs.Report) -> Report:
    """A report from C."""
    return Report(
        c.prompt_tokens,
        c.matched_tokens,
        c.reused_tokens,
        c.copied_tokens,
        c.to_compute_tokens,
        c.checkpoint_would_help_at,
        None if c.limiting_group == _structs.MAX_GROUPS else c.limiting_group,
        _name(OUTCOMES, c.outcome),
        _name(REASONS, c.reason),
    )


@dataclass(frozen=True)
class Counts:
    """Requests by outcome and by reason, and tokens."""

    outcomes: dict[str, int]
    reasons: dict[str, int]
    lookups: int
    queried_tokens: int
    reused_tokens: int
    copied_tokens: int
    computed_tokens: int


@dataclass(frozen=True)
class GroupStats:
    """The blocks of one layer group, now."""

    capacity_blocks: int
    free_blocks: int
    cached_blocks: int
    draft_blocks: int
    peak_used_blocks: int
    evictable_blocks: int
    block_bytes: int


@dataclass(frozen=True)
class Stats:
    """A consistent snapshot of a cache. `total` counts since it was created, `window` the last
    `window_s` seconds. Bucket 0 of a histogram counts zeros, bucket i values in [2**(i-1),
    2**i)."""

    total: Counts
    window: Counts
    window_s: float
    groups: tuple[GroupStats, ...]
    match_tokens: tuple[int, ...]
    eviction_age_us: tuple[int, ...]
    leases: int
    scopes: int
    evicted_blocks: int
    duplicate_blocks: int
    tails_published: int
    forks: int
    rewinds: int
    pin_expiries: int
    quota_refusals: int
    orphaned_blocks: int
    stale_walks: int
    hint_repairs: int
    markers_dropped: int
    exact_counts: int
    pinned_blocks: int
    logits_bytes: int
    checkpoints: int
    index_bytes: int
    event_bytes: int
    kv_bytes_used: int
    kv_bytes_capacity: int


def _counts_of(c: _structs.Counts) -> Counts:
    return Counts(
        dict(zip(OUTCOMES, c.outcomes)),
        dict(zip(REASONS, c.reasons)),
        c.lookups,
        c.queried_tokens,
        c.reused_tokens,
        c.copied_tokens,
        c.computed_tokens,
    )


def stats_of(c: _structs.Stats) -> Stats:
    """Statistics from C."""
    groups = tuple(
        GroupStats(
            g.capacity_blocks,
            g.free_blocks,
            g.cached_blocks,
            g.draft_blocks,
            g.peak_used_blocks,
            c.evictable_blocks[i],
            g.block_bytes,
        )
        for i, g in enumerate(c.groups[: c.group_count])
    )
    return Stats(
        total=_counts_of(c.total),
        window=_counts_of(c.window),
        window_s=c.window_ns / 1e9,
        groups=groups,
        match_tokens=tuple(c.match_tokens.buckets),
        eviction_age_us=tuple(c.eviction_age_us.buckets),
        **{name: getattr(c, name) for name in _structs.STATS_COUNTS},
    )


@dataclass(frozen=True)
class Event:
    """Something was stored or removed, or everything was cleared (see stemma/events.h). `keys` are
    content keys of 32 bytes; of `stored`, keys[i] names the i-th block after `parent`, and `words`
    are their words. `group` is None where the index has cells of its own."""

    kind: str
    sequence: int
    parent: bytes
    keys: tuple[bytes, ...]
    words: NDArray[np.uint32]
    block_tokens: int
    group: int | None
    tail: bool


def event_of(c: Any) -> Event:
    """A copy of an event from C, which is borrowed for the callback."""
    raw = ctypes.string_at(c.keys, 32 * c.key_count) if c.key_count else b""
    words = ctypes.string_at(c.words, 4 * c.word_count) if c.word_count else b""
    return Event(
        _name(EVENTS, c.kind),
        c.sequence,
        bytes(c.parent.bytes),
        tuple(raw[i : i + 32] for i in range(0, len(raw), 32)),
        np.frombuffer(words, np.uint32),
        c.block_tokens,
        None if c.group == _structs.MAX_GROUPS else c.group,
        bool(c.tail),
    )


@dataclass(frozen=True)
class CachedPath:
    """Something cached, from its beginning to a block without successor."""

    scope: bytes
    tokens: int
    held: bool
