"""PagedTiers and Mover from Python, over blocks in numpy memory."""

import gc
import os
import tempfile
import unittest

import numpy as np

import stemma

BLOCK, BLOCKS, BYTES = 16, 32, 4096


class Engine:
    """Pages whose bytes follow from their tokens, a cache over them, and levels below it."""

    def __init__(self, levels, layout=None):
        raw = np.zeros(BLOCKS * BYTES + 64, np.uint8)
        begin = -raw.ctypes.data % 64
        self.raw = raw
        self.pages = raw[begin : begin + BLOCKS * BYTES].reshape(BLOCKS, BYTES)
        half = BYTES // 2
        at = self.pages.ctypes.data
        planes = [stemma.Plane(at + n * half, BYTES, half, n) for n in range(2)]
        self.mover = stemma.Mover([(planes, BLOCKS)], threads=2)
        groups = [stemma.Group(capacity_blocks=BLOCKS, block_tokens=BLOCK, block_bytes=BYTES)]
        self.cache = stemma.PagedCache(groups)
        self.scope = stemma.Scope("weights")
        self.tiers = stemma.PagedTiers(
            levels,
            groups,
            layout=self.mover.layout if layout is None else layout,
            io=self.mover.block_io(),
            mover=self.mover,
            query_s=120.0,  # A slow machine must not make levels late,
            load_s=120.0,
        )
        self.tiers.prefilled(1000, 1000.0)  # nor computing look cheaper than loading.

    def serve(self, tokens):
        """Returns how many tokens were restored and reused, once all bytes are right."""
        restored = self.tiers.restore(self.cache, self.scope, tokens)
        with self.cache.lease(self.scope, tokens) as lease:
            if restored.hold is not None:
                restored.hold.release()
            reused = lease.reused
            for copy in lease.copies():
                self.pages[copy.target] = self.pages[copy.source]
            lease.copies_done()
            table = lease.block_table()
            for n in range(lease.committed // BLOCK, len(table)):
                self.pages[table[n]] = self.bytes_of(tokens, n)
            lease.commit(lease.length)
            for n in range(len(tokens) // BLOCK):
                assert (self.pages[table[n]] == self.bytes_of(tokens, n)).all(), n
            self.tiers.store(self.scope, tokens, lease, begin=reused)
        return restored.restored_tokens, reused

    @staticmethod
    def bytes_of(tokens, n):
        seed = int(tokens[: (n + 1) * BLOCK].astype(np.uint64).sum()) + n
        return np.random.default_rng(seed).integers(0, 256, BYTES, np.uint8)

    def close(self):
        self.tiers.close()
        self.cache.close()
        self.mover.close()


def prompt(seed, length=100):
    return np.random.default_rng(seed).integers(0, 1000, length, np.uint32)


class Tiers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def disk(self):
        return [stemma.Level("disk", capacity_bytes=16 << 20, where=self.folder.name)]

    def test_what_was_evicted_comes_back(self):
        engine = Engine([stemma.Level("host", capacity_bytes=16 << 20)])
        for seed in range(10):
            self.assertEqual(engine.serve(prompt(seed)), (0, 0))
        self.assertTrue(engine.tiers.flush(300))
        for seed in range(3):
            self.assertEqual(engine.serve(prompt(seed)), (96, 96))
        level = engine.tiers.levels()[0]
        self.assertEqual((level.name, level.entries, level.hits), ("host", 60, 18))
        self.assertEqual(level.corrupt, 0)
        moved = engine.mover.stats()
        self.assertEqual(moved["load_bytes"], 18 * BYTES)
        self.assertEqual(moved["store_bytes"], 60 * BYTES)
        engine.close()

    def test_another_process_finds_it_on_the_disk_if_the_layout_is_the_same(self):
        first = Engine(self.disk())
        first.serve(prompt(1))
        self.assertTrue(first.tiers.flush(300))
        first.close()
        again = Engine(self.disk())
        self.assertEqual(again.serve(prompt(1)), (96, 96))
        again.close()
        other = Engine(self.disk(), layout=77)
        self.assertEqual(other.serve(prompt(1)), (0, 0))
        other.close()

    def test_forgetting_a_scope(self):
        engine = Engine([stemma.Level("host", capacity_bytes=16 << 20)])
        engine.serve(prompt(1))
        self.assertTrue(engine.tiers.flush(300))
        engine.cache.drop_scope(engine.scope)
        forgotten = engine.tiers.forget(engine.scope)
        self.assertEqual([(one.level, one.complete) for one in forgotten], [("host", True)])
        self.assertEqual(engine.serve(prompt(1)), (0, 0))
        engine.close()

    def test_bad_input(self):
        with self.assertRaisesRegex(stemma.InvalidArgument, "no groups"):
            stemma.Mover([])
        with self.assertRaises(stemma.InvalidArgument):
            stemma.Mover([([stemma.Plane(4096, 0, 64, 0)], 4)])  # Pages on top of each other.
        with self.assertRaises(stemma.StemmaError):
            stemma.Mover([([stemma.Plane(4096, 64, 64, 0)], 4)], device=4095)
        engine = Engine([stemma.Level("host", capacity_bytes=16 << 20)])
        with self.assertRaisesRegex(stemma.InvalidArgument, "block_bytes"):
            stemma.PagedTiers(
                [stemma.Level("host", capacity_bytes=1 << 20)],
                [stemma.Group(capacity_blocks=4)],
                layout=1,
                io=engine.mover.block_io(),
            )
        with self.assertRaises(stemma.InvalidArgument):
            stemma.PagedTiers([], [], layout=1, io=engine.mover.block_io())
        engine.tiers.close()
        with self.assertRaises(stemma.Closed):
            engine.tiers.restore(engine.cache, engine.scope, prompt(1))
        with self.assertRaises(stemma.Closed):
            engine.tiers.flush()
        engine.tiers.close()
        engine.close()

    def test_forgotten_tiers_end_and_a_child_cannot_use_them(self):
        engine = Engine(self.disk())
        pid = os.fork()
        if pid == 0:
            try:
                engine.tiers.restore(engine.cache, engine.scope, prompt(1))
            except stemma.Forked:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        del engine
        gc.collect()
        Engine(self.disk()).close()  # The directory is free again.


if __name__ == "__main__":
    unittest.main()
