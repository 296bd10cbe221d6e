# Restoring from the disk tier after a restart, and the speed of that disk.
import mmap
import os
import pathlib
import threading
import time

from rows import Samples

PIECE = 8 << 20
READERS = 8
AT_MOST = 4 << 30


def read_speed(folder):
    """(bytes a second, how): reads the largest file below the folder past the page cache, several pieces at a time."""
    files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    if not files:
        return None, "nothing was written"
    path = max(files, key=lambda file: file.stat().st_size)
    pieces = min(path.stat().st_size, AT_MOST) // PIECE
    if pieces == 0:
        return None, "too little was written to measure"
    how = "O_DIRECT"
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:
        # A file system in memory refuses direct reads.
        descriptor, how = os.open(path, os.O_RDONLY), "through the page cache"
    try:
        seconds = _read_all(descriptor, pieces)
    finally:
        os.close(descriptor)
    return pieces * PIECE / seconds, f"{how}, {READERS} readers of {PIECE >> 20} MiB, {pieces * PIECE / 1e9:.2f} GB"


def _read_all(descriptor, pieces):
    failed = []

    def read(reader):
        # Direct reads want memory at page borders, which a mapping is.
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
    """What one length took: the samples, the bytes that came from disk, the bar in ms."""

    def __init__(self):
        self.samples = Samples()
        self.bytes = []

    def bar_ms(self, bytes_a_second):
        """What the issue allows: the bytes at 0.8 of the disk's speed, and 30 ms."""
        if not self.bytes or not bytes_a_second:
            return None
        return max(self.bytes) / (0.8 * bytes_a_second) * 1e3 + 30


def measure(start, folder, prompts, lengths, repeats):
    """Asks, ends the server, measures the disk, starts another, asks again: ({length: DiskRow}, speed, how).

    start() starts a server with a disk tier in the folder."""
    asked = {length: [prompts.fresh(length) for _ in range(repeats)] for length in lengths}
    with start() as server:
        for length in lengths:
            for prompt in asked[length]:
                server.ask(prompt)
            # Before the next length may push this one out of memory.
            server.settle()
    bytes_a_second, how = read_speed(folder)
    rows = {length: DiskRow() for length in lengths}
    with start() as server:
        for length in lengths:
            # The first pass of a length is slower than the others. This one leaves nothing behind to be saved.
            server.ask(prompts.fresh(length), cache_prompt=False)
            for prompt in asked[length]:
                answer = server.ask(prompt)
                rows[length].samples.add(answer)
                rows[length].bytes.append(answer.report.get("tier", {}).get("bytes", 0))
    return rows, bytes_a_second, how
