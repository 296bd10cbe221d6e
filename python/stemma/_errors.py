"""What a status of the C library becomes in Python: one exception class for each.

The classes follow what the caller does next. ``OutOfRoom`` and its subclasses: make room, or ask
for less. ``Busy``: try again. ``InvalidArgument``, ``OutOfRange``, ``WrongState``, ``Stale`` and
``Unsupported``: fix the call. ``CopyFailed`` and ``Corrupt``: compute what could not be had.
"""

from __future__ import annotations

import ctypes
from typing import NoReturn

from stemma import _library

_core = _library.load("stemma")
_message = _core.quick.stemma_last_error_message
_message.argtypes, _message.restype = [], ctypes.c_char_p
_value = _core.quick.stemma_last_error_value
_value.argtypes, _value.restype = [], ctypes.c_uint32
_group = _core.quick.stemma_last_error_group
_group.argtypes, _group.restype = [], ctypes.c_uint32
_never = _core.quick.stemma_last_error_never_fits
_never.argtypes, _never.restype = [], ctypes.c_int32


class StemmaError(Exception):
    """Any refusal of Stemma. `value` is the number that it is about, or None."""

    hint = ""

    def __init__(self, message: str, value: int | None = None) -> None:
        super().__init__(f"{message}. {self.hint}" if self.hint else message)
        self.value = value


class OutOfRoom(StemmaError):
    """There is no room for what the call asks for."""


class OutOfBlocks(OutOfRoom):
    """Too few blocks of a layer group are free or can be evicted. `value` says how many are
    missing."""

    hint = "Release leases or wait for running requests to end, then call again"

    def __init__(self, message: str, value: int | None, group: int | None, never: bool) -> None:
        if never:
            self.hint = (
                "This never fits: ask for fewer tokens, or create the cache with more "
                "capacity_blocks"
            )
        super().__init__(message, value)
        self.group = group
        self.never_fits = never


class OverQuota(OutOfRoom):
    """The tenant's quota does not allow it."""

    hint = "Release leases of this tenant, or raise its quota with set_quota()"


class OverPinShare(OutOfRoom):
    """Pins may not hold more of the pool."""

    hint = "Unpin something, or create the cache with a larger pin_share"


class OutOfMemory(OutOfRoom, MemoryError):
    """The system gave no memory."""


class Busy(StemmaError):
    """Something is still in use, or another thread is using this lease."""

    hint = "Nothing has changed; call again later"


class InvalidArgument(StemmaError, ValueError):
    """An argument that no call may have."""


class OutOfRange(StemmaError, ValueError):
    """A position, index or count beyond what there is."""


class WrongState(StemmaError, RuntimeError):
    """The right call at the wrong moment."""


class Stale(StemmaError, RuntimeError):
    """What the call is about is gone."""


class Closed(Stale):
    """The cache, store or lease was closed."""


class Forked(StemmaError, RuntimeError):
    """It belongs to the parent process."""

    hint = "Create caches and stores after fork(), in the process that uses them"


class Unsupported(StemmaError, RuntimeError):
    """It was not created with what the call needs."""


class CopyFailed(StemmaError):
    """Bytes could not be copied; what depends on them must be computed."""


class Corrupt(StemmaError):
    """Bytes do not describe what they should. None of them were used."""


_CLASSES: dict[int, type[StemmaError]] = {
    2: OverQuota,
    3: OverPinShare,
    4: OutOfMemory,
    5: Busy,
    6: InvalidArgument,
    7: OutOfRange,
    8: WrongState,
    9: Stale,
    10: Unsupported,
    11: CopyFailed,
    12: Corrupt,
}
_OUT_OF_BLOCKS = 1
_NO_VALUE = 0xFFFF_FFFF
_NO_GROUP = 8


def raise_last(status: int) -> NoReturn:
    """Raises what this thread's last call failed with."""
    message = (_message() or b"").decode(errors="replace").rstrip(".")
    number = _value()
    value = None if number == _NO_VALUE else number
    if status == _OUT_OF_BLOCKS:
        group = _group()
        raise OutOfBlocks(message, value, None if group == _NO_GROUP else group, bool(_never()))
    raise _CLASSES.get(status, StemmaError)(message, value)
