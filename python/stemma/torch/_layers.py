"""What transformers sees of a request: layers that hold one contiguous copy of the KV being used.

Attention wants the keys of a sequence in one piece, while the pool keeps them in blocks. So a
request's layers copy what was found into buffers with room for the answer. A token is then added
by one small copy, where transformers' own DynamicCache makes a new tensor of everything for every
token and layer.

A column is a place along a padded batch. Column c of a row with `pad` leading pads is position c -
pad.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import cache_utils as hf

from stemma._errors import InvalidArgument, WrongState
from stemma.torch._shapes import LayerShape

MOST_GENERATED = 8192  # Columns after the prompt that a window layer keeps, to be stored.

Seen = Callable[["BufferLayer", Any, Any], None]


class BufferLayer(hf.CacheLayerMixin):  # type: ignore[misc]
    """The keys and values of one attention layer, for columns [start, end).

    `seen` is called with new keys and values before they are added. A window layer keeps the
    columns that the next token sees, those of the block before them, and what was generated.
    """

    is_compileable = False
    is_croppable = True
    supports_early_init = False

    def __init__(
        self, number: int, shape: LayerShape, block_tokens: int, prompt_columns: int, seen: Seen
    ) -> None:
        self.number = number
        self.shape = shape
        self.is_sliding = shape.kind == "window"
        self.is_initialized = False
        self.start = self.end = 0
        self._before = max(0, shape.window - 1) if self.is_sliding else 0
        self._margin = block_tokens
        self._prompt = prompt_columns
        self._seen = seen
        self._room = 0
        self._k: Any = None
        self._v: Any = None

    @property
    def keys(self) -> Any:
        """What DynamicCache would have here."""
        return None if self._k is None else self._visible(self._k, 0)

    @property
    def values(self) -> Any:
        """What DynamicCache would have here."""
        return None if self._v is None else self._visible(self._v, 0)

    def _visible(self, buffer: Any, new: int) -> Any:
        first = max(self.start, self.end - new - self._before) if self.is_sliding else 0
        return buffer[:, :, first - self.start : self.end - self.start]

    def allocate(self, rows: int, room: int, end: int, dtype: Any, device: Any) -> None:
        """Makes buffers that hold `end` columns, which the caller fills, and have room for `room`.
        What comes behind them is written before it is seen, so nothing is cleared."""
        self.start = max(0, end - self._before - self._margin) if self.is_sliding else 0
        self.end = end
        self._room = room
        columns = self._columns(end - self.start, end)
        with torch.inference_mode(False):
            self._k = torch.empty((rows, self.shape.key[0], columns, self.shape.key[1]),
                                  dtype=dtype, device=device)  # fmt: skip
            self._v = torch.empty((rows, self.shape.value[0], columns, self.shape.value[1]),
                                  dtype=dtype, device=device)  # fmt: skip
        self.is_initialized = True

    def _columns(self, held: int, end: int) -> int:
        """How many columns buffers get that hold `held` columns now."""
        if not self.is_sliding:
            return max(self._room, end)
        answer = min(max(0, self._room - max(end, self._prompt)), MOST_GENERATED)
        ahead = max(0, self._prompt - end)
        least = self._before + self._margin
        return max(held, least) + min(ahead, least) + answer

    def columns(self, row: int, begin: int, end: int) -> tuple[Any, Any]:
        """Keys and values of columns [begin, end) of a row, each [positions, heads, size]."""
        begin, end = begin - self.start, end - self.start
        return (
            self._k[row, :, begin:end].transpose(0, 1),
            self._v[row, :, begin:end].transpose(0, 1),
        )

    def blank(self, row: int, end: int) -> None:
        """Zeros the columns of a row before `end`, where nothing was found: they are hidden, but what
        is there is still multiplied by zero."""
        if end > self.start:
            self._k[row, :, : end - self.start].zero_()
            self._v[row, :, : end - self.start].zero_()

    def target(self, row: int, begin: int, end: int) -> tuple[Any, Any]:
        """Where keys and values of columns [begin, end) of a row lie, each [heads, positions,
        size]."""
        begin, end = begin - self.start, end - self.start
        return self._k[row, :, begin:end], self._v[row, :, begin:end]

    # ---- Called by transformers -----------------------------------------------------------------

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        self.allocate(key_states.shape[0], self._room, 0, key_states.dtype, key_states.device)

    def update(
        self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        self._seen(self, key_states, value_states)
        new = key_states.shape[2]
        at = self.end - self.start
        if at + new > self._k.shape[2]:
            if self.is_sliding:
                return self._slide(key_states, value_states, new)
            self._grow(at + new)
        self._k.narrow(2, at, new).copy_(key_states)
        self._v.narrow(2, at, new).copy_(value_states)
        first = max(0, at - self._before) if self.is_sliding else 0
        self.end += new
        count = at + new - first
        return self._k.narrow(2, first, count), self._v.narrow(2, first, count)

    def _grow(self, columns: int) -> None:
        more = columns + max(256, columns // 4)
        used = self.end
        for name in ("_k", "_v"):
            old = getattr(self, name)
            with torch.inference_mode(False):
                new = torch.empty((*old.shape[:2], more, old.shape[3]), dtype=old.dtype,
                                  device=old.device)  # fmt: skip
            new[:, :, :used] = old[:, :, :used]
            setattr(self, name, new)

    def _slide(self, key_states: Any, value_states: Any, new: int) -> tuple[Any, Any]:
        """Adds columns that have no room: what falls behind the window is given up."""
        end = self.end + new
        first = max(self.start, self.end - self._before)  # The first column that the new ones see.
        keep_from = max(self.start, end - self._before - self._margin)
        answers = []
        for name, states in (("_k", key_states), ("_v", value_states)):
            old = getattr(self, name)
            all_of_them = torch.cat((old[:, :, : self.end - self.start], states), dim=2)
            held = end - keep_from
            with torch.inference_mode(False):
                buffer = torch.zeros((*old.shape[:2], self._columns(held, end), old.shape[3]),
                                     dtype=old.dtype, device=old.device)  # fmt: skip
            buffer[:, :, :held] = all_of_them[:, :, keep_from - self.start :]
            setattr(self, name, buffer)
            answers.append(all_of_them[:, :, first - self.start :])
        self.start, self.end = keep_from, end
        return answers[0], answers[1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        first = max(0, self.end - self._before) if self.is_sliding else 0
        return self.end - first + query_length, first

    def get_seq_length(self) -> int:
        return self.end

    def get_max_length(self) -> int:
        return self.shape.window if self.is_sliding else -1

    get_max_cache_shape = get_max_length  # Its name in older versions of transformers.

    def reset(self) -> None:
        raise WrongState("a cache of a pool serves one request; ask cache_for() for another")

    def crop(self, tokens_to_remove: int) -> None:
        """Takes away the last columns. transformers passes a negative number."""
        if tokens_to_remove > 0:
            raise InvalidArgument(f"crop({tokens_to_remove}): give a negative number of tokens")
        end = self.end + tokens_to_remove
        if end < 0 or (self.is_sliding and self.start > max(0, end - self._before)):
            raise InvalidArgument(
                f"crop({tokens_to_remove}) goes behind what layer {self.number} still has; "
                f"it has columns [{self.start}, {self.end})"
            )
        self.end = end

    def reorder_cache(self, beam_idx: Any) -> None:
        if self._k is not None:
            self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self._k is not None:
            self._k = self._k.repeat_interleave(repeats, dim=0)
            self._v = self._v.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: Any) -> None:
        if self._k is not None:
            indices = indices.to(self._k.device)
            self._k = self._k.index_select(0, indices)
            self._v = self._v.index_select(0, indices)
