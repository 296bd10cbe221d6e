"""Who may use a C object, and until when.

A Handle holds the pointer to a C cache, stack or store and ends it when nobody refers to the Handle
any more. A call takes a reference to the Handle for as long as it runs, so close() on another
thread never takes the object away from under a call: it puts a closed Handle in its place, and the
last call that still runs ends the object.

After fork(), the child's copies of the handles are replaced by forked ones, which raise. The C
objects are left as they are: their threads, and locks that these held, exist in the parent only.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import NoReturn

from stemma._errors import Closed, Forked


_handles: weakref.WeakSet[Handle] = weakref.WeakSet()
_of_the_parent: list[Handle] = []  # A child keeps these for good, so that nothing ends them there.


class Handle:
    """The pointer to a C object that this process may use."""

    __slots__ = ("__weakref__", "_end", "address", "forked")

    def __init__(self, address: int, end: Callable[[int], object]) -> None:
        self.address = address
        self.forked = False
        self._end = end
        _handles.add(self)

    def __del__(self) -> None:
        if not self.forked:
            self._end(self.address)

    def check(self) -> None:
        """Raises Forked in a child of the process that the object belongs to."""
        if self.forked:
            raise Forked("this object belongs to the parent process")


class Ended(Handle):
    """In place of the Handle of what was closed."""

    __slots__ = ("_what",)

    def __init__(self, what: str, forked: bool) -> None:
        self.forked = forked
        self._what = what

    def __del__(self) -> None:
        pass

    def __getattr__(self, name: str) -> NoReturn:
        # Only `address` can be missing here.
        if self.forked:
            raise Forked(f"this {self._what} belongs to the parent process")
        raise Closed(f"this {self._what} was closed")


class Owner:
    """What has a Handle and can be closed."""

    _what = "object"
    _handle: Handle

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        _owners.add(self)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or belongs to a parent process."""
        return isinstance(self._handle, Ended)

    def close(self) -> None:
        """Ends it, once calls that are running have returned. A second call does nothing."""
        if not self.closed:
            self._handle = Ended(self._what, forked=False)


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


def _after_fork() -> None:
    for handle in list(_handles):
        handle.forked = True
        _of_the_parent.append(handle)
    for owner in list(_owners):
        if not owner.closed:
            owner._handle = Ended(owner._what, forked=True)


os.register_at_fork(after_in_child=_after_fork)
