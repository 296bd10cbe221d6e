"""The keys of a batch and the hints of a put, as the arrays that the C library takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy as np
from numpy.typing import NDArray

from stemma import _store_structs as s
from stemma._options import number

MOST_KEY_BYTES = 64
_MOST_DEPTH = (1 << 30) - 1

Keys = Union[Sequence[bytes], NDArray[np.uint8]]
Numbers = Union[Sequence[int], NDArray[Any]]
Parents = Union[Sequence[Optional[bytes]], NDArray[np.uint8]]
# Keys back to back, the size of each or None, the size of all, and how many there are.
Packed = tuple[bytes, "NDArray[np.uint8] | None", int, int]


def pack(keys: Keys) -> Packed:
    """Keys as the C library takes them. Each has 1 to 64 bytes."""
    if isinstance(keys, np.ndarray):
        if keys.dtype != np.uint8 or keys.ndim != 2:
            raise TypeError("keys are a list of bytes, or an array of uint8, one row for each key")
        _check_key(keys.shape[1])
        return keys.tobytes(), None, keys.shape[1], keys.shape[0]
    if isinstance(keys, (bytes, str)):
        raise TypeError(f"keys are a list of bytes, not one {type(keys).__name__}")
    keys = list(keys)
    packed = b"".join(keys)
    lengths = set(map(len, keys))
    for length in lengths:
        _check_key(length)
    if len(lengths) == 1:
        (size,) = lengths
        _check_packed(packed, size * len(keys))
        return packed, None, size, len(keys)
    sizes = np.fromiter(map(len, keys), np.uint8, len(keys))
    _check_packed(packed, int(sizes.sum()))
    return packed, sizes if keys else None, 1, len(keys)


def give_hints(
    request: s.StoreRequest,
    count: int,
    priority: int,
    priorities: Numbers | None,
    depths: Numbers | None,
    parents: Parents | None,
) -> list[object]:
    """Puts hints into the request of a put. Returns the arrays, which must live until submit has
    copied them."""
    request.priority = number("priority", priority, 100)
    keep: list[object] = []
    if priorities is not None:
        given = _each("priorities", priorities, count, 100).astype(np.uint8)
        request.priorities = given.ctypes.data
        keep.append(given)
    if depths is not None:
        deep = _each("depths", depths, count, _MOST_DEPTH).astype(np.uint32)
        request.depths = deep.ctypes.data
        keep.append(deep)
    if parents is not None:
        packed, sizes = _pack_parents(parents, count)
        request.parents, request.parent_sizes = packed, sizes.ctypes.data
        keep += [packed, sizes]
    return keep


def _pack_parents(parents: Parents, count: int) -> tuple[bytes, NDArray[np.uint8]]:
    if isinstance(parents, (bytes, str)):
        raise TypeError(f"parents are a list of keys, not one {type(parents).__name__}")
    if isinstance(parents, np.ndarray):
        packed, _, size, found = pack(parents)
        sizes = np.full(found, size, np.uint8)
    else:
        named = [b"" if one is None else one for one in parents]
        for one in named:
            if one:
                _check_key(len(one))
        packed, found = b"".join(named), len(named)
        sizes = np.fromiter(map(len, named), np.uint8, found)
        _check_packed(packed, int(sizes.sum()))
    if found != count:
        raise ValueError(f"there are {found} parents for {count} keys")
    return packed, sizes


def _each(name: str, values: Numbers, count: int, most: int) -> NDArray[Any]:
    """A whole number for each key, from 0 to `most`."""
    given = np.asarray(values)
    if given.shape != (count,):
        raise ValueError(f"there are {given.size} {name} for {count} keys")
    if count and given.dtype.kind not in "iu":
        raise TypeError(f"{name} have dtype {given.dtype}; give whole numbers")
    if count and not (0 <= given.min() and given.max() <= most):
        raise ValueError(f"{name} must be from 0 to {most}")
    return given


def _check_packed(packed: bytes, size: int) -> None:
    # len() of a memoryview of other things than bytes is not its number of bytes.
    if len(packed) != size:
        raise TypeError("keys are a list of bytes; give view.tobytes() instead of a memoryview")


def _check_key(length: int) -> None:
    if not 1 <= length <= MOST_KEY_BYTES:
        raise ValueError(
            f"a key has {length} bytes; it must have 1 to {MOST_KEY_BYTES}. Hash longer ones, for "
            "example with hashlib.sha256(key).digest()"
        )
