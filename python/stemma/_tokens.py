"""Tokens as the C library takes them: a pointer to 32-bit words.

Arrays of uint32 and int32 are passed by pointer, without a copy (a negative int32 has the bits of a
word that no token may have, so it is refused like one that is too large). Those of 64 bits are
checked and narrowed in one pass, into memory that is used again. Everything else becomes one of
these first: lists, other widths, other byte orders, arrays with gaps.

The pointer is read from the array at each call and is not kept.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import NDArray

from stemma import _library
from stemma._errors import raise_last
from stemma._memory import address_of, check_storage

if TYPE_CHECKING:
    import torch

    Tokens = Union[NDArray[np.integer[Any]], torch.Tensor, Sequence[int]]
else:
    Tokens = Any

_narrow = _library.load("stemma").quick.stemma_tokens_from_int64
_narrow.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_narrow.restype = ctypes.c_int32

_U32, _I32, _I64 = np.dtype(np.uint32), np.dtype(np.int32), np.dtype(np.int64)


class Scratch(NamedTuple):
    """Memory for narrowed tokens. Who takes it has it alone until it is given back."""

    address: int
    size: int
    array: NDArray[np.uint32]


# The address of the tokens, their number, the object that keeps them alive, and the bytes of each:
# 4 or 8.
Found = tuple[int, int, object, int]
# The address of the words, their number, and what keeps them alive: the array, or a Scratch.
Words = tuple[int, int, Optional[object]]

_free: list[Scratch] = []


def _take(count: int) -> Scratch:
    try:
        scratch = _free.pop()
    except IndexError:
        pass
    else:
        if scratch.size >= count:
            return scratch
    array = np.empty(max(count, 4096), np.uint32)
    return Scratch(address_of(array), array.size, array)


def give_back(keep: object) -> None:
    """To be called with the third part of Words when the call that used them has returned."""
    if type(keep) is Scratch and len(_free) < 16:
        _free.append(keep)


def words(tokens: Tokens) -> Words:
    """The words of `tokens`. Raises TypeError for what holds no tokens, and OutOfRange for 64-bit
    tokens that are negative or not below 2**31; those of 32 bits are checked by the call that they
    are for."""
    address, count, keep, width = find(tokens)
    return (address, count, keep) if width == 4 else _narrowed(address, count)


def find(tokens: Tokens) -> Found:
    """Where `tokens` are, as numbers of 32 or 64 bits that nobody has looked at. Raises
    TypeError."""
    if type(tokens) is np.ndarray:
        return _of_array(tokens)
    if hasattr(tokens, "data_ptr"):
        return _of_tensor(tokens)
    return _of_array(_as_array(tokens))


def _as_array(tokens: Any) -> NDArray[Any]:
    if isinstance(tokens, (str, bytes)) or tokens is None:
        raise TypeError(
            f"tokens are numbers, not {type(tokens).__name__}: give an array of token ids"
        )
    try:
        array = np.asarray(tokens)
    except (OverflowError, ValueError) as error:
        raise TypeError(f"tokens cannot be read as one array of numbers: {error}") from error
    if array.size == 0 and array.dtype == np.float64:  # An empty list.
        return np.empty(0, np.uint32)
    return array


def _of_array(array: NDArray[Any]) -> Found:
    if array.ndim != 1:
        raise TypeError(f"tokens have {array.ndim} dimensions; give one prompt, as array[row]")
    dtype = array.dtype
    if dtype is not _U32 and dtype is not _I32 and dtype is not _I64:
        array = _converted(array)
        dtype = array.dtype
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return address_of(array), array.size, array, array.itemsize


def _converted(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"tokens have dtype {array.dtype}; give uint32 (no copy), int32 (no copy) or int64"
        )
    if array.dtype == np.uint64:  # Numbers too large for int64 become negative and are refused.
        return array.astype(np.int64)
    for same in (_U32, _I32, _I64):
        if array.dtype.newbyteorder("=") == same:  # Another name or byte order of the same type.
            return array.astype(same)
    return array.astype(_I32)  # 8 and 16 bits.


def _narrowed(address: int, count: int) -> Words:
    scratch = _take(count)
    status = _narrow(address, count, scratch.address)
    if status:
        give_back(scratch)
        raise_last(status)
    return scratch.address, count, scratch


def _of_tensor(tensor: Any) -> Found:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return _of_array(_as_array(tensor))
    if not tensor.is_cpu:
        raise TypeError(
            f"tokens are on {tensor.device}; keep a copy of them on the CPU, or give tokens.cpu()"
        )
    dtype = tensor.dtype
    if dtype is not torch.int64 and dtype is not torch.int32:
        # Rare: numpy converts it, or reports what is wrong.
        return _of_array(_numpy(tensor))
    if tensor.layout is not torch.strided:
        raise TypeError(f"tokens have layout {tensor.layout}; give a dense tensor")
    if tensor.dim() != 1:
        raise TypeError(f"tokens have {tensor.dim()} dimensions; give one prompt, as tensor[row]")
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    count = tensor.numel()
    address = tensor.data_ptr()
    width = 8 if dtype is torch.int64 else 4
    check_storage(tensor, "tokens", address, count * width)
    return address, count, tensor, width


def _numpy(tensor: Any) -> NDArray[Any]:
    try:
        return np.asarray(tensor.detach())
    except (TypeError, RuntimeError, ValueError) as error:
        raise TypeError(f"tokens have dtype {tensor.dtype}; give int64, int32 or uint32") from error
