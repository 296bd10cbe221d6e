"""Where the values of a batch lie, as the C library takes them: an array of pointers, and sizes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from stemma._memory import address_of, check_storage


class Rows:
    """Rows of one array: of a memoryview or numpy array with two dimensions, row `indices[i]` is
    the value of key i. This is how engines keep blocks; nothing is done for each row but a
    multiplication."""

    __slots__ = ("array", "indices", "row_bytes", "stride", "writable", "_base")

    def __init__(self, array: Any, indices: Sequence[int] | NDArray[Any]) -> None:
        # numpy would copy these, and what is loaded would be lost.
        if isinstance(array, (list, tuple)):
            raise TypeError(f"Rows are of an array, not of a {type(array).__name__}")
        view = np.asarray(array)
        if view.ndim != 2 or view.dtype.hasobject:
            raise TypeError("Rows are of an array with two dimensions, of numbers")
        self.row_bytes = view.shape[1] * view.itemsize
        if self.row_bytes == 0:  # In C, 0 stands for the size that the namespace has.
            raise ValueError("the rows have no bytes")
        if view.shape[1] > 1 and view.strides[1] != view.itemsize:
            raise TypeError("the bytes of a row must lie side by side")
        chosen = np.asarray(indices)
        if chosen.dtype.kind not in "iu" and chosen.size:
            raise TypeError(f"indices have dtype {chosen.dtype}; give whole numbers")
        chosen = chosen.astype(np.int64).ravel()
        if chosen.size and not (0 <= chosen.min() and chosen.max() < view.shape[0]):
            raise IndexError(f"a row is not in 0 to {view.shape[0] - 1}")
        self.array = view
        self.indices = chosen
        self.stride = view.strides[0]
        self.writable = view.flags.writeable
        self._base = view.__array_interface__["data"][0]

    def addresses(self) -> NDArray[np.uint64]:
        """Where each row begins."""
        places: NDArray[np.uint64] = (self._base + self.indices * self.stride).astype(np.uint64)
        return places


Values = Union[Rows, Sequence[Any]]
# Pointers, the size of each or None, the size of all, and the object that keeps them alive.
Placed = tuple[NDArray[np.uint64], "NDArray[np.uint64] | None", int, object]


def place(values: Values, count: int, write: bool) -> Placed:
    """Checks values and says where they are."""
    if isinstance(values, Rows):
        if len(values.indices) != count:
            raise ValueError(f"there are {len(values.indices)} rows for {count} keys")
        if write and not values.writable:
            raise TypeError("values cannot be loaded into an array that is read-only")
        return values.addresses(), None, values.row_bytes, values.array
    if isinstance(values, (bytes, bytearray, memoryview)):
        raise TypeError("values are a list of buffers, one for each key, or Rows")
    buffers = [_view(one, write) for one in values]
    if len(buffers) != count:
        raise ValueError(f"there are {len(buffers)} values for {count} keys")
    places = np.fromiter((address_of(one) for one in buffers), np.uint64, count)
    sizes = np.fromiter((one.nbytes for one in buffers), np.uint64, count)
    return places, sizes, 0, buffers


def _view(value: Any, write: bool) -> NDArray[np.uint8]:
    """The bytes of one value, in place."""
    if hasattr(value, "data_ptr"):  # A tensor; numpy does not know all of its types.
        if not value.is_cpu or not value.is_contiguous():
            raise TypeError("a tensor as value must be on the CPU and contiguous")
        if value.numel() == 0:
            return np.empty(0, np.uint8)
        check_storage(value, "a value", value.data_ptr(), value.numel() * value.element_size())
        # numpy() also tells torch that this memory may not be freed or moved as long as the tensor
        # lives: untyped_storage().resize_() then raises, instead of leaving the batch with a bad
        # address.
        flat = value.detach().reshape(-1).view(sys.modules["torch"].uint8)
        raw: NDArray[np.uint8] = flat.numpy()
        return raw
    view = memoryview(value)
    if not view.c_contiguous:
        raise TypeError("a value must be contiguous")
    if write and view.readonly:
        raise TypeError("values cannot be loaded into a buffer that is read-only")
    if view.nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(view, np.uint8)
