"""What a model keeps for each token: which layers have keys and values, which have a running
state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import cache_utils as hf

from stemma._errors import InvalidArgument, Unsupported
from stemma._options import Attention

ALIGNMENT = 16  # Of every piece of a block, so that any device can copy it in words.


@dataclass(frozen=True)
class Piece:
    """One tensor of a block: `shape` is what one block, or one saved state, has of it."""

    layer: int
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Its bytes."""
        count = 1
        for n in self.shape:
            count *= n
        return count * int(self.dtype.itemsize)


@dataclass(frozen=True)
class GroupShape:
    """Layers that share block numbers. `window` is how many positions a position sees, itself
    included; 0 in other groups. Pieces are in the order in which they lie in a block."""

    attention: Attention
    window: int
    pieces: tuple[Piece, ...]

    def offsets(self) -> list[int]:
        """Where each piece begins in a block."""
        at, starts = 0, []
        for piece in self.pieces:
            starts.append(at)
            at += -(-piece.size // ALIGNMENT) * ALIGNMENT
        return starts

    @property
    def block_bytes(self) -> int:
        """How large a block is."""
        return sum(-(-piece.size // ALIGNMENT) * ALIGNMENT for piece in self.pieces)


@dataclass(frozen=True)
class LayerShape:
    """One layer of a model's cache. `kind` is "full", "window", "state" or "none"."""

    kind: str
    window: int = 0
    key: tuple[int, int] = (0, 0)  # Heads and their size.
    value: tuple[int, int] = (0, 0)
    states: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class ModelShape:
    """All layers of a model's cache, and where it computes."""

    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def has_states(self) -> bool:
        """Whether some layers have a running state instead of keys and values."""
        return any(layer.kind == "state" for layer in self.layers)

    def groups(self, block_tokens: int) -> list[GroupShape]:
        """The block groups: full attention first, then each window size, then running states."""
        full: list[Piece] = []
        windows: dict[int, list[Piece]] = {}
        states: list[Piece] = []
        for number, layer in enumerate(self.layers):
            if layer.kind == "state":
                states.extend(layer.states)
            elif layer.kind != "none":
                into = full if layer.kind == "full" else windows.setdefault(layer.window, [])
                for name, (heads, size) in (("key", layer.key), ("value", layer.value)):
                    into.append(Piece(number, name, (heads, block_tokens, size), self.dtype))
        made = [GroupShape(Attention.FULL, 0, tuple(full))] if full else []
        made += [GroupShape(Attention.WINDOW, w, tuple(windows[w])) for w in sorted(windows)]
        if states:
            made.append(GroupShape(Attention.RECURRENT, 0, tuple(states)))
        return made


def _state_pieces(number: int, layer: Any) -> tuple[Piece, ...]:
    pieces = []
    for name, states in (("conv", layer.conv_states), ("recurrent", layer.recurrent_states)):
        for index, state in states.items():
            if state is not None:
                pieces.append(Piece(number, f"{name} {index}", tuple(state.shape[1:]), state.dtype))
    return tuple(pieces)


# A layer that keeps nothing. Older versions of transformers have no class for it: there it is a
# layer of running states that never gets one.
_Dummy: Any = getattr(hf, "DummyLayer", None)


def dummy_layer() -> Any:
    """A layer that keeps nothing."""
    return hf.LinearAttentionLayer() if _Dummy is None else _Dummy()


def _layer_shape(number: int, layer: Any) -> LayerShape:
    if type(layer) is _Dummy:
        return LayerShape("none")
    if type(layer) is hf.LinearAttentionLayer:
        states = _state_pieces(number, layer)
        return LayerShape("state", states=states) if states else LayerShape("none")
    if type(layer) not in (hf.DynamicLayer, hf.DynamicSlidingWindowLayer):
        raise Unsupported(
            f"layer {number} of the model keeps a {type(layer).__name__}, which cannot be reused"
        )
    if not layer.is_initialized or layer.keys.numel() == 0:
        return LayerShape("none")  # It uses what another layer keeps.
    sliding = type(layer) is hf.DynamicSlidingWindowLayer
    keys, values = layer.keys, layer.values
    return LayerShape(
        "window" if sliding else "full",
        int(layer.sliding_window) if sliding else 0,
        (int(keys.shape[1]), int(keys.shape[3])),
        (int(values.shape[1]), int(values.shape[3])),
    )


def _one(name: str, found: Sequence[Any]) -> Any:
    kinds = sorted({str(one) for one in found})
    if len(kinds) != 1:
        raise InvalidArgument(
            f"the model's layers keep their KV in several {name} ({', '.join(kinds)}); load it "
            "with one"
        )
    return found[0]


def new_cache(model: Any) -> Any:
    """The cache that generate() would make for this model."""
    return hf.DynamicCache(config=model.config.get_text_config(decoder=True))


def probe(model: Any) -> ModelShape:
    """Computes two tokens and looks at what the model kept of them. Raises Unsupported for a model
    whose cache cannot be reused, with the reason."""
    config = model.config
    name = type(model).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise Unsupported(f"{name} has an encoder and a decoder; its cache holds both")
    if not getattr(model, "_supports_default_dynamic_cache", lambda: False)():
        raise Unsupported(f"{name} brings a cache of its own")
    device = model.device
    if device.type == "meta":
        raise InvalidArgument(f"{name} has no weights in memory (device meta); load them first")
    cache = new_cache(model)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            ids = torch.zeros((1, 2), dtype=torch.long, device=device)
            model(input_ids=ids, past_key_values=cache, use_cache=True)
    finally:
        model.train(training)
    layers = tuple(_layer_shape(n, layer) for n, layer in enumerate(cache.layers))
    kept = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
    if not kept:
        raise Unsupported(f"{name} has no attention layers; only whole states could be kept")
    return ModelShape(
        layers,
        _one("dtypes", [layer.keys.dtype for layer in kept]),
        _one("devices", [layer.keys.device for layer in kept]),
    )
