"""Replays recorded traces: what a cache of a size, with a policy, would have found."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Any, TypedDict, Union

from stemma import _library, _structs
from stemma._errors import raise_last


class ReplayRow(TypedDict):
    """What one policy found at one capacity."""

    trace: str
    policy: str
    hints: bool
    capacity_blocks: int
    block_tokens: int
    requests: int
    block_refs: int
    block_hits: int
    hit_ratio: float
    cost_weighted_hit_ratio: float
    evictions: int
    seconds: float


_run: Any = None


def _function() -> Any:
    global _run
    if _run is None:
        function = _library.load("stemma_replay").waiting.stemma_replay_run
        function.argtypes = [
            ctypes.POINTER(ctypes.c_char_p),
            ctypes.c_size_t,
            _structs.ReplayFunction,
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_uint64),
        ]
        function.restype = ctypes.c_int32
        _run = function
    return _run


def replay(
    trace: Union[str, os.PathLike[str]],
    *,
    policies: Iterable[str] = (),
    capacities: Iterable[Union[int, str]] = (),
    hints: bool = True,
    block_tokens: int | None = None,
    model_kv_bytes: int | None = None,
    lenient: bool = False,
    jobs: int | None = None,
) -> list[ReplayRow]:
    """Replays a trace (docs/formats/trace.md; .jsonl or .jsonl.zst) and returns a row for each
    policy and capacity: `pandas.DataFrame(stemma.replay("trace.jsonl"))` is a table of them.

    `capacities` are blocks (5000), a part of the trace's blocks ("5%"), or bytes ("40GB", which
    needs `model_kv_bytes`, the KV bytes of one token); none means a sweep from 0.5 % to 40 %.
    `policies` are names such as "lru", "adaptive", "min" (the bound) or "all"; none means the ones
    that matter. `lenient` leaves out lines that cannot be used. `jobs` is how many replays run at
    once.

    Raises InvalidArgument for an argument, and Corrupt with the line's number for a trace.
    """
    words = [os.fspath(trace)]
    if words[0].startswith("-"):
        words[0] = os.path.join(".", words[0])
    for policy in policies:
        words += ["--policy", str(policy)]
    for capacity in capacities:
        words += ["--capacity", str(capacity)]
    words += ["--hints", "on" if hints else "off"]
    for name, value in (
        ("--block-tokens", block_tokens),
        ("--model-kv-bytes", model_kv_bytes),
        ("--jobs", jobs),
    ):
        if value is not None:
            words += [name, str(int(value))]
    if lenient:
        words.append("--lenient")
    rows: list[ReplayRow] = []
    given = (ctypes.c_char_p * len(words))(*(os.fsencode(word) for word in words))
    status = _function()(
        given,
        len(words),
        _structs.ReplayFunction(lambda _, row: rows.append(_row(row.contents))),
        None,
        None,
    )
    if status:
        raise_last(status)
    return rows


def _row(c: _structs.ReplayRow) -> ReplayRow:
    return ReplayRow(
        trace=c.trace.decode(errors="replace"),
        policy=c.policy.decode(),
        hints=bool(c.hints),
        capacity_blocks=c.capacity_blocks,
        block_tokens=c.block_tokens,
        requests=c.requests,
        block_refs=c.block_refs,
        block_hits=c.block_hits,
        hit_ratio=c.hit_ratio,
        cost_weighted_hit_ratio=c.cost_weighted_hit_ratio,
        evictions=c.evictions,
        seconds=c.seconds,
    )
