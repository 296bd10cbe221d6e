"""From the pool into a request: what was found of its prompts goes into its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from stemma._options import Attention
from stemma.torch import _states
from stemma.torch._layers import BufferLayer
from stemma.torch._rows import Row, Rows

if TYPE_CHECKING:
    from stemma.torch._pool import Pool


def fill(pool: Pool, rows: Rows, layers: Sequence[Any]) -> None:
    """Copies columns [0, depth) of every row into the layers; of a window layer, what its window
    needs."""
    pool._wait_for_others()
    for number, row in enumerate(rows.of):
        if row.lease is None or not row.reused:
            for layer in layers:
                if isinstance(layer, BufferLayer):
                    layer.blank(number, rows.depth)
    for row in rows.distinct:
        if row.lease is not None and row.reused:
            same = [n for n, one in enumerate(rows.of) if one is row]
            _fill_row(pool, row, same, rows.depth, layers, len(rows.of))
    pool._used()


def _fill_row(
    pool: Pool, row: Row, same: Sequence[int], depth: int, layers: Sequence[Any], batch: int
) -> None:
    lease = row.lease
    assert lease is not None
    saved = pool._run_copies(lease)
    for group, pages in enumerate(pool.pages):
        if pages.shape.attention is Attention.RECURRENT:
            _states.load(pages, saved[group], layers, batch, same)
            continue
        first = 0
        if pages.shape.attention is Attention.WINDOW:
            first = max(0, row.reused - (pages.shape.window - 1)) // pool.block_tokens
        table = lease.block_table(group)[first : -(-row.reused // pool.block_tokens)]
        blocks = torch.from_numpy(table.astype(np.int64)).to(pool.shape.device)
        begin = first * pool.block_tokens + row.pad
        for number in {piece.layer for piece in pages.shape.pieces}:
            for one_of_them in same:
                layers[number].blank(one_of_them, begin)
        for piece in pages.shape.pieces:
            one = 0 if piece.name == "key" else 1
            layer = layers[piece.layer]
            target = layer.target(row.number, begin, depth)[one]
            pages.read(piece.layer, piece.name, blocks, int(table[-1]), target)
            for other in same[1:]:
                layer.target(other, begin, depth)[one].copy_(target)
