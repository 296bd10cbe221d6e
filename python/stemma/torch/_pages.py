"""The memory of a pool: equal blocks in one tensor, and the tensors that a layer sees in it."""

from __future__ import annotations

from typing import Any

import torch

from stemma._errors import InvalidArgument, OutOfMemory, WrongState
from stemma.torch._shapes import GroupShape


def page_memory(count: int, block_bytes: int, device: torch.device) -> Any:
    """Memory for `count` blocks. Raises OutOfMemory."""
    try:
        with torch.inference_mode(False):
            return torch.zeros((count, block_bytes), dtype=torch.uint8, device=device)
    except (RuntimeError, MemoryError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OutOfMemory(
            f"{device} has no room for {count} blocks of {block_bytes} bytes ({text}); "
            "give the pool fewer tokens"
        ) from error


def check_memory(memory: Any, count: int, block_bytes: int, device: torch.device) -> Any:
    """`memory`, if blocks may lie in it. Raises InvalidArgument, which says what to change."""
    if not isinstance(memory, torch.Tensor):
        raise InvalidArgument(f"memory is a {type(memory).__name__}; give a torch tensor")
    if memory.dtype != torch.uint8:
        raise InvalidArgument(f"memory has dtype {memory.dtype}; give torch.uint8")
    if memory.device != device:
        raise InvalidArgument(f"memory is on {memory.device}; the model's KV is on {device}")
    if tuple(memory.shape) != (count, block_bytes):
        raise InvalidArgument(
            f"memory has shape {tuple(memory.shape)}; this pool needs ({count}, {block_bytes})"
        )
    if not memory.is_contiguous():
        raise InvalidArgument(f"memory has strides {memory.stride()}; give a contiguous tensor")
    if memory.data_ptr() % 16:
        raise InvalidArgument("memory does not begin at a multiple of 16 bytes")
    if memory.requires_grad or memory.is_inference():
        raise InvalidArgument("memory must be an ordinary tensor without gradients")
    return memory


class Pages:
    """The blocks of one group. Block b is row b of `memory`; `pieces[i]` shows piece i of every
    block.

    It knows places and shapes; which prompt a block belongs to is the cache's affair.
    """

    def __init__(self, shape: GroupShape, memory: Any) -> None:
        self.shape = shape
        self.memory = memory
        self._size = memory.numel()
        self.pieces = [
            memory[:, at : at + piece.size].view(piece.dtype).unflatten(1, piece.shape)
            for at, piece in zip(shape.offsets(), shape.pieces)
        ]
        self.number = {(piece.layer, piece.name): n for n, piece in enumerate(shape.pieces)}

    def check(self) -> None:
        """Raises WrongState if the memory was freed or made smaller by whoever owns it."""
        if self.memory.untyped_storage().nbytes() < self._size:
            raise WrongState("the pool's memory was freed; make a new pool")

    def of(self, layer: int, name: str) -> Any:
        """The piece of a layer, for all blocks."""
        return self.pieces[self.number[layer, name]]

    def read(self, layer: int, name: str, blocks: Any, last: int, into: Any) -> None:
        """Copies positions of `blocks`, in order, to `into` [heads, positions, size]: as many as it
        has room for, the last of them in block `last`. (Asking `blocks` for it would wait.)"""
        piece = self.of(layer, name)
        heads, tokens, size = piece.shape[1:]
        whole = into.shape[1] // tokens
        if whole:
            target = into[:, : whole * tokens].unflatten(1, (whole, tokens))
            with torch.no_grad():
                torch.index_select(piece.transpose(0, 1), 1, blocks[:whole], out=target)
        rest = into.shape[1] - whole * tokens
        if rest:
            into[:, whole * tokens :].copy_(piece.select(0, last)[:, :rest])

    def write(self, layer: int, name: str, blocks: Any, offsets: Any, rows: Any) -> None:
        """Puts `rows` [positions, heads, size] at `offsets` of `blocks`."""
        self.of(layer, name)[blocks, :, offsets] = rows

    def copy(self, source: int, target: int) -> None:
        """Copies a whole block."""
        self.memory[target].copy_(self.memory[source])
