"""In which order the streams of a device work on blocks.

Work of one stream runs in the order in which it was queued. Other streams wait for it: what reads
or writes blocks comes between wait_for_others() and used(), and a lease is released after used(), so
whoever gets its blocks next waits for what was done with them. The mover of the levels waits for
the default stream, so that one waits for all of them.
"""

from __future__ import annotations

import threading
from typing import Any

import torch


class Order:
    """The streams of one device that work on the blocks of a pool. On a CPU there is nothing to do.

    Threading: thread-safe; each call speaks for the calling thread's present stream.
    """

    def __init__(self, device: Any, streams: Any = None) -> None:
        """`streams` takes the place of torch.cuda."""
        self._device = device
        self._streams = streams if streams is not None else torch.cuda
        self._on = device.type == "cuda"
        self._mover_waits = False
        self._lock = threading.RLock()  # A cache that is collected meanwhile calls used().
        self._events: dict[int, Any] = {}  # Of each stream: its last work on blocks.

    def mover_waits(self) -> None:
        """From now on a mover copies blocks after what the default stream has at that time."""
        self._mover_waits = True
        if self._on:
            with self._lock:
                for event in list(self._events.values()):
                    self._streams.default_stream(self._device).wait_event(event)

    def used(self) -> None:
        """Blocks were read or written by work that was queued on this stream until now."""
        if not self._on:
            return
        stream = self._streams.current_stream(self._device)
        event = self._streams.Event()
        event.record(stream)
        with self._lock:
            self._events[stream.cuda_stream] = event
            default = self._streams.default_stream(self._device)
            if self._mover_waits and stream.cuda_stream != default.cuda_stream:
                # Now, and not when a copy is asked for: the blocks that it writes may be taken from
                # their last user after that.
                default.wait_event(event)

    def wait_for_others(self) -> None:
        """Work that is queued on this stream from now on comes after what other streams did."""
        if not self._on:
            return
        stream = self._streams.current_stream(self._device)
        with self._lock:
            for other, event in list(self._events.items()):
                if event.query():
                    self._events.pop(other, None)
                elif other != stream.cuda_stream:
                    stream.wait_event(event)

    def settle(self) -> None:
        """Waits until no stream works on blocks any more."""
        with self._lock:
            events, self._events = list(self._events.values()), {}
        for event in events:
            event.synchronize()
