"""Blocks of an engine's own in a store. Run it: python3 python/examples/store_basics.py [DIRECTORY]"""

import hashlib
import select
import sys
import tempfile

import numpy as np

import stemma

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
levels = [
    stemma.Level("host", capacity_bytes=64 << 20),
    stemma.Level("disk", capacity_bytes=256 << 20, where=f"{folder}/kv"),
]
with stemma.Store(levels) as store:
    layout = stemma.layout_of(model="my/model", dtype="bf16", page=16)
    blocks = store.namespace("engine/my-model", layout=layout, value_bytes=65536)

    memory = np.random.default_rng(1).integers(0, 256, (128, 65536), np.uint8)  # The engine's pages.
    keys = [hashlib.sha256(b"block %d" % i).digest() for i in range(32)]
    blocks.put(keys, stemma.Rows(memory, range(32)))  # Starts, and does not wait.
    select.select([store], [], [])  # An event loop would watch this descriptor.
    for ended in store.drain():
        print(f"stored {ended.finished.done} of {ended.finished.count}")

    print(f"{(blocks.lookup(keys) != 0).sum()} are there")  # At once: an index in memory.
    loaded = blocks.get(keys, stemma.Rows(memory, range(64, 96))).wait()
    assert loaded.ok and (memory[64:96] == memory[:32]).all()
    print(f"loaded {loaded.leading}")
