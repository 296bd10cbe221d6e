"""Where arrays lie that the C library reads or writes, once they are known to be fit for it."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from stemma._errors import InvalidArgument

if TYPE_CHECKING:
    import torch

    Room = Union[NDArray[np.integer[Any]], torch.Tensor]
else:
    Room = Any

_at: Any = ctypes.c_uint8.from_buffer
_addressof = ctypes.addressof


def address_of(array: NDArray[Any]) -> int:
    """Where a contiguous array begins."""
    try:
        return _addressof(_at(array))  # Takes a sixth of the time of `ctypes.data`.
    except (TypeError, ValueError):  # It is empty or read-only.
        return int(array.ctypes.data)


def check_storage(tensor: Any, name: str, address: int, size: int) -> None:
    """Raises InvalidArgument where a tensor's memory does not hold `size` bytes from `address`
    on."""
    if size == 0:
        return
    storage = tensor.untyped_storage()
    if address == 0 or address + size > storage.data_ptr() + storage.nbytes():
        raise InvalidArgument(
            f"the memory of {name} was freed or made smaller; give a tensor that has its memory"
        )


def room(out: Room, width: int) -> tuple[int, int]:
    """Address and number of elements of an array of whole numbers, `width` bytes each, to write
    to."""
    name = f"int{8 * width}"
    if isinstance(out, np.ndarray):
        if out.dtype.kind not in "iu" or out.dtype.itemsize != width or not out.dtype.isnative:
            raise TypeError(f"out has dtype {out.dtype}; give an array of {name} or u{name}")
        flags = out.flags
        if not flags.c_contiguous or not flags.writeable or out.ndim != 1:
            raise TypeError("out must be contiguous, writable and of one dimension")
        return address_of(out), out.size
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(out, torch.Tensor):
        if out.dtype not in (torch.int32, torch.int64) or out.element_size() != width:
            raise TypeError(f"out has dtype {out.dtype}; give a tensor of {name}")
        if not out.is_cpu or out.dim() != 1 or not out.is_contiguous():
            raise TypeError("out must be on the CPU, contiguous and of one dimension")
        address = out.data_ptr()
        check_storage(out, "out", address, width * out.numel())
        return address, out.numel()
    raise TypeError(f"out is a {type(out).__name__}; give a numpy array or a torch tensor")
