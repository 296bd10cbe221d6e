"""Running states of layers without keys: from a saved slot into a request's layers, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import cache_utils as hf

from stemma.torch._pages import Pages
from stemma.torch._shapes import LayerShape, Piece


def state_layer(shape: LayerShape) -> Any:
    """A layer of transformers' own, with as many states as the model has."""
    return hf.LinearAttentionLayer(number_of_states=1 + max(_place(p)[1] for p in shape.states))


def _place(piece: Piece) -> tuple[str, int]:
    kind, number = piece.name.split()
    return kind, int(number)


def _states(layer: Any, kind: str) -> Any:
    return layer.conv_states if kind == "conv" else layer.recurrent_states


def load(pages: Pages, slot: int, layers: Sequence[Any], batch: int, rows: Sequence[int]) -> None:
    """Puts what `slot` has into `rows` of the layers."""
    for piece in pages.shape.pieces:
        layer = layers[piece.layer]
        kind, number = _place(piece)
        saved = pages.of(piece.layer, piece.name)[slot]
        if _states(layer, kind)[number] is None:
            with torch.inference_mode(False):
                zeros = torch.zeros((batch, *piece.shape), dtype=piece.dtype, device=saved.device)
            if kind == "conv":
                layer.lazy_initialization(conv_states=zeros, state_idx=number)
            else:
                layer.lazy_initialization(recurrent_states=zeros, state_idx=number)
        for row in rows:
            _states(layer, kind)[number][row].copy_(saved)
        layer.has_previous_state[number] = True


def save(pages: Pages, slot: int, layers: Sequence[Any], row: int) -> None:
    """Puts the states of a row into `slot`."""
    for piece in pages.shape.pieces:
        kind, number = _place(piece)
        states = _states(layers[piece.layer], kind)
        pages.of(piece.layer, piece.name)[slot].copy_(states[number][row])
