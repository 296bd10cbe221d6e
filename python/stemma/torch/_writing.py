"""From a request into the pool: prompts while they are computed, answers when they are complete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from stemma._errors import OutOfRoom
from stemma._lease import Lease
from stemma._options import Attention
from stemma._scope import Scope
from stemma.torch import _states
from stemma.torch._layers import BufferLayer
from stemma.torch._rows import Row, Rows

if TYPE_CHECKING:
    from stemma.torch._pool import Pool


class Writer:
    """Writes the keys and values of one batch into the pool's blocks.

      prompts:  each layer's update --> blocks of the leases; when all layers are done --> commit
      answers:  buffers --> blocks of the lease, extended --> commit --> levels --> release

    Invariant: nothing is committed that not all layers have computed.
    """

    def __init__(self, pool: Pool, scope: Scope, rows: Rows, layers: Sequence[Any]) -> None:
        self._pool = pool
        self._scope = scope
        self._rows = rows
        self._layers = layers
        # Of each group: which columns came last, and where they go.
        self._slots: dict[int, tuple[int, int, Any]] = {}
        self._began = time.monotonic()
        self.pending = True  # The prompts are not committed yet.
        for row in rows.distinct:
            row.stored = row.reused

    def computed(self) -> int:
        """Columns that all attention layers have."""
        return min(layer.end for layer in self._layers if isinstance(layer, BufferLayer))

    # ---- Prompts --------------------------------------------------------------------------------

    def write_prompt(self, layer: BufferLayer, keys: Any, values: Any) -> None:
        """Writes what belongs to prompts of keys and values that come to column `layer.end`."""
        group = self._pool._group_of[layer.number]
        new = keys.shape[2]
        known = self._slots.get(group)
        if known is None or known[:2] != (layer.end, new):
            if known is None:
                self._pool._wait_for_others()
            slots = self._rows.slots(group, layer.end, min(layer.end + new, self._rows.columns))
            device = self._pool.shape.device
            made = None if slots is None else [torch.from_numpy(one).to(device) for one in slots]
            known = self._slots[group] = (layer.end, new, made)
        if known[2] is None:
            return
        rows, columns, blocks, offsets = known[2]
        pages = self._pool.pages[group]
        whole = len(self._rows.of) == 1 and columns.numel() == new
        for name, states in (("key", keys), ("value", values)):
            taken = states[0].transpose(0, 1) if whole else states[rows, :, columns]
            pages.write(layer.number, name, blocks, offsets, taken)

    def commit_prompts(self) -> None:
        """Publishes the prompts, as far as all layers have computed them."""
        self.pending = False
        computed = min(self.computed(), self._rows.columns)
        self._slots.clear()
        self._pool._used()
        for row in self._rows.distinct:
            if row.lease is not None and row.stores and computed > row.pad + row.reused:
                n = min(computed - row.pad, row.tokens.size)
                if n > row.lease.committed:
                    self._commit_row(row, row.lease, n)
                row.committed = n == row.tokens.size
        tiers = self._pool.tiers
        if tiers is not None and computed == self._rows.columns:
            new = sum(row.tokens.size - row.reused for row in self._rows.of)
            if new >= 4 * self._pool.block_tokens:
                tiers.prefilled(new, time.monotonic() - self._began)

    def _commit_row(self, row: Row, lease: Lease, n: int) -> None:
        """Publishes the first `n` tokens of a row. A lease gives up blocks that fall behind a
        window, so with levels this goes window by window, and each is stored while the lease has
        it."""
        pool = self._pool
        windows = [g.window - 1 for g in pool.groups if g.attention is Attention.WINDOW]
        if pool.tiers is not None and windows:
            step = max(pool.block_tokens, min(windows) // pool.block_tokens * pool.block_tokens)
            at = lease.committed - lease.committed % pool.block_tokens
            while at + step < n:
                at += step
                lease.commit(at)
                pool._store(self._scope, lease, row.tokens, row.stored)
                row.stored = at
        lease.commit(n)

    def checkpoint(self, depth: int) -> int:
        """Saves the running states after `depth` columns of each prompt. Returns for how many
        there was room."""
        saved = 0
        self._pool._used()  # Prompts are committed up to here.
        for row in self._rows.distinct:
            if row.lease is not None and row.stores and depth > row.reused:
                if depth > row.lease.committed:
                    row.lease.commit(depth)
                saved += self._save_states(row.lease, row.number, depth)
        return saved

    def _save_states(self, lease: Lease, row: int, depth: int) -> bool:
        group = len(self._pool.pages) - 1
        try:
            slot = lease.draft_checkpoint(group)
        except OutOfRoom:
            self._pool._count("states_without_room")
            return False
        self._pool._wait_for_others()
        _states.save(self._pool.pages[group], slot, self._layers, row)
        self._pool._used()
        lease.commit_checkpoint(group, depth)
        return True

    # ---- Answers --------------------------------------------------------------------------------

    def keep(self, tokens: NDArray[np.int64], ends: Sequence[int]) -> int:
        """Stores each row of the batch up to its end, in columns. Returns how many tokens are
        new."""
        computed = self.computed()
        kept = 0
        for number, row in enumerate(self._rows.of):
            answer = np.ascontiguousarray(tokens[number, row.pad : ends[number]], np.uint32)
            if answer.size > row.reused:
                kept += self._keep_row(row, number, answer, ends[number] == computed)
        return kept

    def _keep_row(
        self, row: Row, number: int, tokens: NDArray[np.uint32], at_end: bool
    ) -> int:
        """Stores one row, up to the last token that has keys and values."""
        pool = self._pool
        own = row.lease is not None and row.stores and row.committed
        try:
            if own and row.lease is not None:
                lease = row.lease
                if tokens.size > row.tokens.size:
                    lease.extend(tokens[row.tokens.size :])
                row.lease = None
            else:
                row.release()
                lease = pool.cache.lease(self._scope, tokens)
        except OutOfRoom:
            pool._count("tokens_without_room", int(tokens.size) - row.reused)
            return 0
        try:
            if not own:
                pool._wait_for_others()
                pool._run_copies(lease)
                lease.copies_done()
            begin = lease.committed
            if not self._write_answer(lease, number, row.pad, begin, tokens.size):
                pool._count("tokens_without_room", int(tokens.size) - begin)
                return 0
            pool._used()
            if begin < tokens.size:
                lease.commit(tokens.size)
            if pool.shape.has_states and at_end:
                self._save_states(lease, number, tokens.size)
            pool._store(self._scope, lease, tokens, row.stored if own else row.reused)
        finally:
            pool._used()
            lease.release()
        return int(tokens.size) - row.reused

    def _write_answer(self, lease: Lease, number: int, pad: int, begin: int, end: int) -> bool:
        """Copies positions [begin, end) of a row from the buffers into the lease's blocks. False:
        a window layer does not have them any more."""
        if begin >= end:
            return True
        pool = self._pool
        pool._wait_for_others()
        for group, pages in enumerate(pool.pages):
            if pages.shape.attention is Attention.RECURRENT:
                continue
            slots = lease.slot_mapping(begin, end, group)
            there = np.flatnonzero(slots >= 0)
            if there.size == 0:
                continue
            first = begin + int(there[0])
            layers = sorted({piece.layer for piece in pages.shape.pieces})
            if any(self._layers[layer].start > first + pad for layer in layers):
                return False
            taken = slots[there[0] :]
            blocks = torch.from_numpy(taken // pool.block_tokens).to(pool.shape.device)
            offsets = torch.from_numpy(taken % pool.block_tokens).to(pool.shape.device)
            for layer in layers:
                keys, values = self._layers[layer].columns(number, first + pad, end + pad)
                pages.write(layer, "key", blocks, offsets, keys)
                pages.write(layer, "value", blocks, offsets, values)
        return True

    def store_prompts(self) -> None:
        """Hands committed prompts to the levels, where no answer follows."""
        for row in self._rows.distinct:
            if row.lease is not None and row.committed:
                self._pool._store(self._scope, row.lease, row.tokens, row.stored)
