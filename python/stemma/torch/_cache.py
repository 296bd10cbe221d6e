"""The cache object of one request, between transformers and the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import cache_utils as hf

from stemma._errors import InvalidArgument, OutOfRange, StemmaError, WrongState
from stemma._scope import Scope
from stemma.torch._layers import BufferLayer
from stemma.torch._reading import fill
from stemma.torch._rows import Rows, check_ids
from stemma.torch._shapes import dummy_layer
from stemma.torch._states import state_layer
from stemma.torch._writing import Writer

if TYPE_CHECKING:
    from stemma.torch._pool import Pool


class RequestCache(hf.Cache):  # type: ignore[misc]
    """A transformers cache that begins with what the pool has of a batch's prompts.

    Pool.cache_for() makes one. Give it to generate() or forward() as `past_key_values`, with all
    ids and a mask as long as they are; then call finish() with the ids that came out, or close().

    Threading: one thread at a time, like the model that it is given to.
    """

    def __init__(
        self, pool: Pool, ids: Any, mask: Any, room: int | None, scope: Scope | None = None
    ) -> None:
        tokens, pads = check_ids(ids, mask)
        if pool.shape.has_states and any(pads):
            raise InvalidArgument(
                "this model has layers with a running state, which would go over the padding; "
                "give rows of equal length"
            )
        pool._check()
        self._pool = pool
        self._prompt = tokens
        self._batch, columns = tokens.shape
        self._room = max(columns + 1, room if room is not None else columns + 256)
        self._closed = False
        self._shuffled = False
        scope = scope if scope is not None else pool.scope
        self._rows = rows = Rows(pool, scope, tokens, pads)
        try:
            super().__init__(layers=[self._layer(n) for n in range(len(pool.shape.layers))])
            if rows.depth:
                fill(pool, rows, self.layers)
            for row in rows.distinct:
                if row.lease is not None and row.stores:
                    row.lease.copies_done()
                else:
                    row.release()
            self._writer = Writer(pool, scope, rows, self.layers)
        except BaseException:
            pool._used()
            rows.release(keep_tail=False)
            self._closed = True
            raise
        pool._began(self)

    def _layer(self, number: int) -> Any:
        shape = self._pool.shape.layers[number]
        if shape.kind == "none":
            return dummy_layer()
        if shape.kind == "state":
            return state_layer(shape)
        pool = self._pool.shape
        columns = self._prompt.shape[1]
        layer = BufferLayer(number, shape, self._pool.block_tokens, columns, self._seen)
        layer.allocate(self._batch, self._room, self._rows.depth, pool.dtype, pool.device)
        return layer

    # ---- What it has ----------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Columns that need not be computed; padding counts."""
        return self._rows.depth

    @property
    def reused_tokens(self) -> list[int]:
        """Tokens of each row that were found."""
        return [row.reused for row in self._rows.of]

    @property
    def shuffled(self) -> bool:
        """Whether rows were moved, repeated or cut off: then only the prompts are kept."""
        return self._shuffled

    @property
    def closed(self) -> bool:
        """Whether it was finished or closed."""
        return self._closed

    def stops(self) -> list[int]:
        """Columns at which a state would help later requests: before the last token, and where a
        cached prompt parts from this one. Empty for models without running states."""
        if not self._pool.shape.has_states:
            return []
        last = self._prompt.shape[1] - 1
        if self._pool.tiers is not None:  # Levels keep states at the borders of blocks alone.
            last -= last % self._pool.block_tokens
        wanted = {last}
        for row in self._rows.distinct:
            if row.lease is not None and row.stores:
                wanted.add(row.pad + row.lease.report.checkpoint_would_help_at)
        return sorted(at for at in wanted if self.depth < at < self._prompt.shape[1])

    # ---- While it is computed -------------------------------------------------------------------

    def _seen(self, layer: BufferLayer, keys: Any, values: Any) -> None:
        """Called by each layer with what it is about to add."""
        if layer.end >= self._prompt.shape[1]:
            if self._writer.pending:
                self._writer.commit_prompts()
            return
        if self._closed:
            raise WrongState("this cache was finished; ask cache_for() for another")
        self._check_states(layer, keys, values)
        if self._writer.pending:
            self._writer.write_prompt(layer, keys, values)

    def _check_states(self, layer: BufferLayer, keys: Any, values: Any) -> None:
        if keys.requires_grad and torch.is_grad_enabled():
            raise WrongState("KV with gradients cannot be kept; compute under torch.no_grad()")
        shape = self._pool.shape
        for name, states, (heads, size) in (
            ("keys", keys, layer.shape.key),
            ("values", values, layer.shape.value),
        ):
            if states.dtype != shape.dtype or states.device != shape.device:
                raise InvalidArgument(
                    f"layer {layer.number} gave {name} of {states.dtype} on {states.device}; the "
                    f"pool was made for {shape.dtype} on {shape.device}. Attach to the model anew"
                )
            wanted = (self._batch, heads, states.shape[2], size)
            if tuple(states.shape) != wanted:
                raise InvalidArgument(
                    f"layer {layer.number} gave {name} of shape {tuple(states.shape)}; for this "
                    f"batch {wanted} was expected. Is the cache that of another batch?"
                )

    def checkpoint(self) -> int:
        """Saves the running states after what was computed until now, so that later requests can
        continue here. Call it between two forwards. Returns for how many prompts there was
        room."""
        if self._closed:
            raise WrongState("this cache was finished; ask cache_for() for another")
        depth = self._writer.computed()
        if not self._pool.shape.has_states or self._shuffled:
            return 0
        if depth > self._prompt.shape[1]:
            raise OutOfRange(
                f"{depth} columns were computed, {self._prompt.shape[1]} of which are the prompt; "
                "finish() saves the states behind an answer",
                depth,
            )
        return self._writer.checkpoint(depth)

    # ---- Its end --------------------------------------------------------------------------------

    def finish(self, ids: Any, lengths: Sequence[int] | None = None) -> int:
        """Keeps prompts and answers, and ends the cache. `ids` are what generate() returned:
        prompts with their padding, then answers. `lengths` say how many columns of each row count,
        where some ended early. Returns how many tokens were kept that were not found. After a beam
        search only prompts are kept, because the rows that it leaves are not those of its
        answers."""
        if self._closed:
            raise WrongState("this cache was finished already")
        try:
            tokens = self._check_answers(ids, lengths)
            if self._writer.pending:
                self._writer.commit_prompts()
            if self._shuffled:
                return 0
            computed = self._writer.computed()
            ends = [computed if lengths is None else min(computed, int(n)) for n in lengths or
                    [computed] * self._batch]  # fmt: skip
            return self._writer.keep(tokens, ends)
        finally:
            self.close()

    def _check_answers(self, ids: Any, lengths: Sequence[int] | None) -> Any:
        tokens, _ = check_ids(ids, None)
        columns = self._prompt.shape[1]
        if self._shuffled:
            return tokens
        if tokens.shape[0] != self._batch or tokens.shape[1] < columns:
            raise InvalidArgument(
                f"ids have shape {tokens.shape}; this cache began with {self._prompt.shape}"
            )
        if tokens.shape[1] < self._writer.computed():
            raise InvalidArgument(
                f"ids have {tokens.shape[1]} columns, but {self._writer.computed()} were computed"
            )
        if not np.array_equal(tokens[:, :columns], self._prompt):
            raise InvalidArgument("ids do not begin with the prompts that this cache is for")
        if lengths is not None and len(lengths) != self._batch:
            raise InvalidArgument(f"there are {len(lengths)} lengths for {self._batch} rows")
        return tokens

    def close(self) -> None:
        """Ends the cache. Prompts that were computed to their end stay in the pool; answers do
        not."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._writer.pending and self._writer.computed() >= self._prompt.shape[1]:
                self._writer.commit_prompts()
            self._writer.store_prompts()
        except StemmaError:
            pass  # The pool was closed meanwhile; there is nothing to keep.
        finally:
            self._pool._used()
            self._rows.release(keep_tail=not self._writer.pending)
            self._pool._ended(self)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._closed = True
            try:
                self._pool._used()
            finally:
                self._rows.release(keep_tail=False)

    # ---- Called by transformers -----------------------------------------------------------------

    def _shuffle(self) -> None:
        """Rows or columns are about to be moved: what follows the prompts cannot be told apart."""
        if not self._closed and self._writer.pending:
            if self._writer.computed() >= self._prompt.shape[1]:
                self._writer.commit_prompts()
            self._writer.pending = False
        self._shuffled = True

    def crop(self, tokens_to_remove: int) -> None:
        """Takes away the last columns; what is computed in their place is not kept."""
        if self._pool.shape.has_states and tokens_to_remove:
            raise WrongState("a running state cannot be taken back; this cache has no crop()")
        if tokens_to_remove:
            self._shuffle()
        super().crop(tokens_to_remove)

    def reorder_cache(self, beam_idx: Any) -> None:
        self._shuffle()
        super().reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._shuffle()
        super().batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: Any) -> None:
        self._shuffle()
        super().batch_select_indices(indices)

    def activate_past_recording(self) -> None:
        """Window layers already keep what a short crop() needs; running states cannot be taken
        back."""
