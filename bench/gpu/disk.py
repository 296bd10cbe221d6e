# Restoring from the disk tier after a restart, and the speed of that disk.
import mmap
import os
import tempfile
import threading
import time

from metrics import difference
from rows import Samples

PIECE = 8 << 20
READERS = 8
PASSES = 2


def read_speed(folder, size):
    """(bytes a second, how): writes a file of about that size into the folder and reads it past the page cache.

    The tier's own files would not do: they are made larger than what is in them, and what was never written is read
    from nowhere, very fast."""
    pieces = max(READERS, size // PIECE)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="speed-") as file:
        # Some disks compress, and would read zeros faster than anything else. So all pieces differ.
        noise = os.urandom(PIECE - 8)
        for piece in range(pieces):
            file.write(piece.to_bytes(8, "little") + noise)
        file.flush()
        os.fsync(file.fileno())
        how = "O_DIRECT"
        try:
            descriptor = os.open(file.name, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
        except OSError:
            # An in-memory file system refuses direct reads.
            descriptor, how = os.open(file.name, os.O_RDONLY), "through the page cache"
        try:
            seconds = min(_read_all(descriptor, pieces) for _ in range(PASSES))
        finally:
            os.close(descriptor)
    return pieces * PIECE / seconds, f"{how}, {READERS} readers of {PIECE >> 20} MiB, {pieces * PIECE / 1e9:.2f} GB"


def _read_all(descriptor, pieces):
    failed = []

    def read(reader):
        # Direct reads need page-aligned memory, which a mapping has.
        with mmap.mmap(-1, PIECE) as memory:
            for piece in range(reader, pieces, READERS):
                try:
                    os.preadv(descriptor, [memory], piece * PIECE)
                except OSError as error:
                    failed.append(error)
                    return

    readers = [threading.Thread(target=read, args=(i,)) for i in range(READERS)]
    begin = time.perf_counter()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    if failed:
        raise failed[0]
    return time.perf_counter() - begin


class DiskRow:
    """What one length took: the samples, the bytes that came from disk, and those that a prompt has there."""

    def __init__(self):
        self.samples = Samples()
        self.bytes = []
        self.stored_bytes = 0

    def disk_ms(self, bytes_a_second):
        """What the disk alone takes to read a prompt."""
        return self.stored_bytes / bytes_a_second * 1e3

    def bar_ms(self, bytes_a_second):
        """The bytes at 0.8 of the disk's speed, and 30 ms."""
        return self.disk_ms(0.8 * bytes_a_second) + 30


def measure(start, folder, prompts, lengths, repeats, speed_bytes):
    """Asks, ends the server, starts another, asks again, and measures the disk: ({length: DiskRow}, speed, how).

    start() starts a server with a disk tier below the folder. The disk is measured with a file of `speed_bytes`."""
    asked = {length: [prompts.fresh(length) for _ in range(repeats)] for length in lengths}
    rows = {length: DiskRow() for length in lengths}
    with start() as server:
        for length in lengths:
            before = server.metrics()
            for prompt in asked[length]:
                server.ask(prompt)
            # Before the next length can push this one out of memory.
            server.settle()
            saved = difference(before, server.metrics(), "stemma_captured_bytes_total") or 0
            rows[length].stored_bytes = saved / repeats
    with start() as server:
        for length in lengths:
            # The first pass of a length is slower than the others. This one leaves nothing to save.
            server.ask(prompts.fresh(length), cache_prompt=False)
            for prompt in asked[length]:
                answer = server.ask(prompt)
                rows[length].samples.add(answer)
                rows[length].bytes.append(answer.report.get("tier", {}).get("bytes", 0))
    # Last, because a disk that has just written a large file is slower for a while.
    return rows, *read_speed(folder, speed_bytes)
