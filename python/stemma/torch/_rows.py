"""The prompts of a batch: how deep each is cached, and the one depth at which all of them
continue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from stemma._errors import InvalidArgument, OutOfRoom
from stemma._lease import Lease
from stemma._scope import Scope

if TYPE_CHECKING:
    from stemma.torch._pool import Pool


class Row:
    """A prompt without its padding. Rows of a batch with the same tokens share one."""

    def __init__(self, tokens: NDArray[np.uint32], pad: int, number: int) -> None:
        self.tokens = tokens
        self.pad = pad
        self.number = number  # The first row of the batch that has it.
        self.lease: Lease | None = None
        self.reused = 0
        self.stored = 0  # Up to here it was handed to the levels, or came from them.
        self.stores = False  # Whether the lease has room for the whole prompt.
        self.committed = False

    def release(self, *, keep_tail: bool = True) -> None:
        """Ends the lease, if there is one."""
        lease, self.lease = self.lease, None
        if lease is not None and not lease.released:
            if keep_tail:
                lease.release()
            else:
                lease.abandon()


def check_ids(ids: Any, mask: Any) -> tuple[NDArray[np.int64], list[int]]:
    """Tokens on the CPU, and the leading pads of each row. Raises InvalidArgument."""
    if not isinstance(ids, torch.Tensor):
        raise InvalidArgument(f"ids are a {type(ids).__name__}; give a torch tensor [rows, tokens]")
    if ids.dtype not in (torch.int64, torch.int32):
        raise InvalidArgument(f"ids have dtype {ids.dtype}; give torch.int64 or torch.int32")
    if ids.dim() != 2 or 0 in ids.shape:
        raise InvalidArgument(f"ids have shape {tuple(ids.shape)}; give [rows, tokens], not empty")
    tokens = ids.detach().to("cpu", torch.int64).numpy()
    if int(tokens.min()) < 0:
        raise InvalidArgument(f"ids contain {int(tokens.min())}; tokens are 0 or more")
    if mask is None:
        return tokens, [0] * tokens.shape[0]
    if not isinstance(mask, torch.Tensor) or tuple(mask.shape) != tokens.shape:
        found = tuple(mask.shape) if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise InvalidArgument(
            f"the mask is {found}; give a tensor of shape {tokens.shape}, like ids"
        )
    given = mask.detach().to("cpu").numpy() != 0
    pads = (~given).sum(axis=1).tolist()
    for row, pad in enumerate(pads):
        if pad == given.shape[1]:
            raise InvalidArgument(f"row {row} of the mask hides every token")
        if not given[row, pad:].all():
            raise InvalidArgument(
                f"row {row} of the mask hides tokens after the first visible one; pad on the left"
            )
    return tokens, [int(pad) for pad in pads]


class Rows:
    """The prompts of a batch, with the depth in columns from which all of them are computed."""

    def __init__(
        self, pool: Pool, scope: Scope, ids: NDArray[np.int64], pads: Sequence[int]
    ) -> None:
        self.pool = pool
        self.columns = ids.shape[1]
        self.of: list[Row] = []  # For each row of the batch.
        self.distinct: list[Row] = []
        known: dict[bytes, Row] = {}
        for number, pad in enumerate(pads):
            tokens = np.ascontiguousarray(ids[number, pad:], np.uint32)
            key = tokens.tobytes()
            row = known.get(key)
            if row is None:
                row = known[key] = Row(tokens, pad, number)
                self.distinct.append(row)
            self.of.append(row)
        self.depth = 0
        try:
            for row in self.distinct:
                row.lease, row.stores = pool._lease(scope, row.tokens)
            self._agree()
        except BaseException:
            self.release()
            raise

    def _agree(self) -> None:
        """Makes all leases end at one column: every model continues a batch at one depth."""
        for row in self.distinct:
            row.reused = row.lease.reused if row.lease is not None else 0
        while True:
            depth = min(row.pad + row.reused for row in self.distinct)
            for row in self.distinct:
                wanted = max(0, depth - row.pad)
                if row.lease is not None and row.reused > wanted:
                    try:
                        row.reused = row.lease.shrink_to(wanted)
                    except OutOfRoom:  # It would have to draft what it gives up.
                        row.release()
                        row.reused, row.stores = 0, False
            if all(row.reused == max(0, depth - row.pad) for row in self.distinct):
                self.depth = depth if any(row.reused for row in self.distinct) else 0
                if self.depth == 0:
                    for row in self.distinct:
                        row.reused = 0
                return

    def release(self, *, keep_tail: bool = True) -> None:
        """Ends all leases."""
        for row in self.distinct:
            row.release(keep_tail=keep_tail)

    def slots(self, group: int, begin: int, end: int) -> tuple[Any, Any, Any, Any] | None:
        """Rows, columns from `begin`, blocks and offsets of what may be written in columns [begin,
        end) of prompts; as four arrays of one length. None: nothing."""
        parts = []
        block_tokens = self.pool.block_tokens
        for row in self.distinct:
            if row.lease is None or not row.stores or row.committed:
                continue
            first = max(begin - row.pad, row.reused, 0)
            last = min(end - row.pad, row.tokens.size)
            if first < last:
                slots = row.lease.slot_mapping(first, last, group)
                columns = np.arange(first + row.pad - begin, last + row.pad - begin)
                there = slots >= 0
                slots, columns = slots[there], columns[there]
                numbers = np.full(slots.size, row.number)
                parts.append((numbers, columns, slots // block_tokens, slots % block_tokens))
        if not parts:
            return None
        joined = tuple(np.concatenate(one) for one in zip(*parts))
        return joined if joined[0].size else None  # type: ignore[return-value]
