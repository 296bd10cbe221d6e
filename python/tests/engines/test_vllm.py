"""The tier in vLLM's real factory and TieringOffloadingManager."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
from directory import flip, inspect, stall, stats_until, used_bytes
from rig_vllm import OURS, LookupResult, Rig, keys_of, values_of

import stemma

SIZE = 65536


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "kv"

    def rig(self, capacity="64MiB", more=None, **options):
        rig = Rig({**OURS, "path": str(self.path), "capacity": capacity, **(more or {})},
                  chunk_bytes=SIZE, **options)
        self.addCleanup(lambda: rig.memory is not None and rig.close())
        return rig


class Tier(Case):
    def test_what_was_stored_is_loaded_into_the_primary_tier(self):
        rig = self.rig()
        keys, values = keys_of(0, 32), values_of(0, 32, SIZE)
        rig.store(keys, values)
        rig.forget_primary()
        for got, wanted in zip(rig.load(keys), values):
            np.testing.assert_array_equal(got, wanted)
        self.assertEqual(rig.load(keys_of(1000, 4)), [None] * 4)

    def test_capacity_is_never_exceeded(self):
        capacity = 8 << 20
        rig = self.rig(capacity=capacity)
        for start in range(0, 512, 32):  # Four times the capacity.
            rig.store(keys_of(start, 32), values_of(start, 32, SIZE))
            # The books that lie beside the entries do not count.
            self.assertLessEqual(used_bytes(self.path), capacity + (1 << 20))
            (level,) = rig.tier._store.stats()["levels"]
            self.assertLessEqual(level["used_bytes"], capacity)
        self.assertGreater(level["evictions"], 100)
        rig.forget_primary()
        last = rig.load(keys_of(480, 32))
        wanted = values_of(480, 32, SIZE)
        there = [i for i, one in enumerate(last) if one is not None]
        self.assertTrue(there)
        for i in there:
            np.testing.assert_array_equal(last[i], wanted[i])

    def test_a_flipped_byte_is_a_miss(self):
        rig = self.rig()
        keys, values = keys_of(0, 8), values_of(0, 8, SIZE)
        rig.store(keys, values)
        rig.close()
        self.assertEqual(flip(self.path, values[3][1000:1064].tobytes()), 1)
        rig = self.rig()
        loaded = rig.load(keys)
        self.assertIsNone(loaded[3])
        for i in (0, 1, 2, 4, 5, 6, 7):
            np.testing.assert_array_equal(loaded[i], values[i])
        self.assertEqual(rig.tier._store.stats()["levels"][0]["entries"], 7)

    def test_kill_9_and_restart_find_what_was_stored(self):
        script = (
            "import sys; sys.path.insert(0, %r)\n"
            "from rig_vllm import *\n"
            "rig = Rig({**OURS, 'path': %r, 'capacity': '64MiB'}, chunk_bytes=%d)\n"
            "rig.store(keys_of(0, 32), values_of(0, 32, %d))\n"
            "print('stored', flush=True)\n"
            "import time; time.sleep(600)\n" % (os.path.dirname(__file__), str(self.path), SIZE, SIZE)
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout:
                if line == "stored\n":
                    break
            child.send_signal(signal.SIGKILL)
        rig = self.rig()
        for got, wanted in zip(rig.load(keys_of(0, 32)), values_of(0, 32, SIZE)):
            np.testing.assert_array_equal(got, wanted)

    def in_a_new_vllm(self, algorithm, seed, store):
        """Stores the blocks of a prompt in a process of its own, or looks how many are there.
        Returns that number, and whether the tier warned."""
        script = (
            "import sys; sys.path.insert(0, %r)\n"
            "from rig_vllm import *\n"
            "rig = Rig({**OURS, 'path': %r, 'capacity': '64MiB'}, chunk_bytes=%d)\n"
            "keys = keys_of_prompt(%r, 8)\n"
            "if %r: rig.store(keys, values_of(0, 8, %d))\n"
            "rig.forget_primary()\n"
            "print('found', sum(one is not None for one in rig.load(keys)), flush=True)\n"
            "rig.close()\n"
            % (os.path.dirname(__file__), str(self.path), SIZE, algorithm, store, SIZE)
        )
        variables = {**os.environ, "VLLM_LOGGING_LEVEL": "WARNING"}
        variables.pop("PYTHONHASHSEED", None)
        if seed is not None:
            variables["PYTHONHASHSEED"] = seed
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], env=variables,
                              capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        (found,) = [line for line in done.stdout.splitlines() if line.startswith("found")]
        return int(found.split()[1]), "stemma: vLLM's block hashes" in done.stdout + done.stderr

    def test_vllms_own_hashes_are_found_after_a_restart(self):
        # seed, found by the next process, warned
        cases = [("sha256", None, 8, False), ("xxhash", None, 0, True), ("xxhash", "0", 8, False)]
        for algorithm, seed, found, warned in cases:
            with self.subTest(algorithm=algorithm, seed=seed):
                self.path = self.path.parent / f"{algorithm}-{seed}"
                stored = self.in_a_new_vllm(algorithm, seed, store=True)
                self.assertEqual(stored, (8, warned))
                after = self.in_a_new_vllm(algorithm, seed, store=False)
                self.assertEqual(after, (found, warned))

    def test_other_layouts_in_one_directory_are_misses(self):
        rig = self.rig()
        rig.store(keys_of(0, 8), values_of(0, 8, SIZE))
        rig.close()
        other = self.rig(dtype="float8")
        self.assertEqual(other.load(keys_of(0, 8)), [None] * 8)
        other.close()
        again = self.rig()
        self.assertIsNotNone(again.load(keys_of(0, 8))[0])

    def test_settings_that_are_wrong_say_what_to_change(self):
        for wrong in (
            {"path": str(self.path)},
            {"capacity": "1GB"},
            {"path": str(self.path), "capacity": "many"},
            {"levels": [{"kind": "tape"}]},
            {"levels": [{"where": "x"}]},
            {"levels": [{"kind": "disk", "size": 3}]},
            {"levels": [{"kind": "host", "capacity": "1GB", "write": "sometimes"}]},
            {"levels": [{"kind": "host", "capacity": "1GB", "promote": "no"}]},
        ):
            with self.assertRaises(ValueError):
                Rig({**OURS, **wrong})
        rig = self.rig()
        with self.assertRaises(stemma.Busy):  # Another engine uses the directory.
            Rig({**OURS, "path": str(self.path), "capacity": "64MiB"})
        rig.close()

    def test_levels_that_have_to_be_asked_answer_a_step_later(self):
        more = {"levels": [{"kind": "shared", "capacity": "64MiB", "where": str(self.path)}]}
        rig = Rig({**OURS, **more}, chunk_bytes=SIZE)
        keys, values = keys_of(0, 16), values_of(0, 16, SIZE)
        rig.store(keys, values)
        rig.forget_primary()
        for got, wanted in zip(rig.load(keys), values):
            np.testing.assert_array_equal(got, wanted)
        self.assertEqual(rig.load(keys_of(100, 2)), [None, None])
        # What was not there and has been stored since is there.
        rig.store(keys_of(100, 2), values_of(100, 2, SIZE))
        rig.forget_primary()
        np.testing.assert_array_equal(np.stack(rig.load(keys_of(100, 2))), values_of(100, 2, SIZE))
        rig.close()

    def test_what_another_engine_stores_later_is_found(self):
        more = {"levels": [{"kind": "shared", "capacity": "64MiB", "where": str(self.path)}]}
        rig, other = (Rig({**OURS, **more}, chunk_bytes=SIZE) for _ in range(2))
        keys, values = keys_of(0, 4), values_of(0, 4, SIZE)
        self.assertEqual(rig.load(keys), [None] * 4)
        other.store(keys, values)
        end = time.monotonic() + 60
        while (loaded := rig.load(keys))[0] is None and time.monotonic() < end:
            rig.step()
        np.testing.assert_array_equal(np.stack(loaded), values)
        rig.close()
        other.close()


class Inspected(Case):
    """What lies in the directory is a disk tier's, and is treated like any other's."""

    def test_inspect_lists_it_and_finds_damage(self):
        rig = self.rig()
        keys, values = keys_of(0, 24), values_of(0, 24, SIZE)
        rig.store(keys, values)
        rig.close()
        code, found = inspect(self.path)
        self.assertEqual(code, 0)
        (space,) = found["namespaces"]
        self.assertEqual((space["name"], space["entries"]), ("vllm/test/model/r0", 24))
        self.assertEqual(space["value_bytes"], SIZE)
        self.assertEqual(len(found["list"]), 24)
        self.assertEqual({entry["kind"] for entry in found["list"]}, {"object"})
        self.assertEqual(sorted({entry["begin"] for entry in found["list"]}), [16 * (i + 1) for i in range(24)])
        code, found = inspect(self.path, "verify")
        self.assertEqual((code, found["damaged"]), (0, 0))
        self.assertEqual(flip(self.path, values[5][1000:1064].tobytes()), 1)
        code, found = inspect(self.path, "verify")
        self.assertEqual((code, found["damaged"]), (1, 1))
        self.assertEqual([e["begin"] for e in found["list"] if e["state"] == "damaged"], [16 * 6])

    def test_a_smaller_capacity_bounds_what_lies_there(self):
        rig = self.rig()
        rig.store(keys_of(0, 64), values_of(0, 64, SIZE))
        rig.close()
        self.assertEqual(len(inspect(self.path)[1]["list"]), 64)
        rig = self.rig(capacity=2 << 20)
        self.assertLessEqual(used_bytes(self.path), (2 << 20) + (1 << 20))
        (level,) = rig.tier._store.stats()["levels"]
        self.assertLessEqual(level["used_bytes"], 2 << 20)
        rig.close()
        left = inspect(self.path)[1]
        self.assertTrue(0 < len(left["list"]) < 32)
        self.assertLessEqual(left["used_bytes"], 2 << 20)

    def test_scrubbing_finds_damage_before_vllm_asks(self):
        level = {"kind": "disk", "where": str(self.path), "capacity": "64MiB", "scrub": "100GB"}
        rig = Rig({**OURS, "levels": [level]}, chunk_bytes=SIZE)
        self.addCleanup(lambda: rig.memory is not None and rig.close())
        keys, values = keys_of(0, 16), values_of(0, 16, SIZE)
        rig.store(keys, values)
        self.assertTrue(rig.tier._store.flush(60))
        self.assertEqual(flip(self.path, values[9][1000:1064].tobytes()), 1)
        level = stats_until(rig.tier._store.stats, lambda now: now["entries"] == 15)
        self.assertEqual(level["entries"], 15)
        rig.forget_primary()
        loaded = rig.load(keys)
        self.assertEqual([i for i, one in enumerate(loaded) if one is None], [9])


def scheduler_beside_a_disk_that_hangs(path):
    """Under stall.py. Deadlines are an hour: if the scheduler waited for the disk, this would not
    return."""
    rig = Rig({**OURS, "path": path, "capacity": "64MiB", "timeout_s": 3600}, chunk_bytes=SIZE)
    keys, values = keys_of(0, 16), values_of(0, 16, SIZE)
    later, more = keys_of(100, 16), values_of(100, 16, SIZE)
    rig.store(keys, values)
    rig.forget_primary()
    stall.hang()
    reader, writer = rig.request(keys), rig.request(later)
    answers = {rig.manager.lookup(key, reader) for key in keys}
    assert answers == {LookupResult.HIT_PENDING}, answers
    stored = rig.manager.prepare_store(later, writer)
    rig.memory[stored.store_spec.chunk_ids] = more
    rig.manager.complete_store(later, writer, True)
    while stall.hung() == 0:
        rig.step()
    for i in range(200):
        other = rig.request(keys_of(1000 + i, 16))
        for key in keys_of(1000 + i, 16):
            assert rig.manager.lookup(key, other) is LookupResult.MISS
        rig.step()
        rig.manager.on_request_finished(other)
        assert {rig.manager.lookup(key, reader) for key in keys} == {LookupResult.HIT_PENDING}
    assert rig.manager.has_pending_work() and stall.hung() > 0
    stall.go_on()
    while {rig.manager.lookup(key, reader) for key in keys} != {LookupResult.HIT}:
        rig.step()
    where = rig.manager.prepare_load(keys, reader).chunk_ids
    assert (rig.memory[where] == values).all()
    rig.manager.complete_load(keys, reader)
    rig.manager.on_request_finished(reader)
    rig.manager.on_request_finished(writer)
    rig.settle()
    rig.forget_primary()
    assert (np.stack(rig.load(later)) == more).all()
    rig.close()


def transfers_end_while_the_disk_hangs(path):
    """Under stall.py."""
    rig = Rig({**OURS, "path": path, "capacity": "64MiB", "timeout_s": 2}, chunk_bytes=SIZE)
    keys = keys_of(0, 16)
    rig.store(keys, values_of(0, 16, SIZE))
    rig.forget_primary()
    stall.hang()
    reader, writer = rig.request(keys), rig.request(keys_of(100, 16))
    for key in keys:
        rig.manager.lookup(key, reader)
    rig.manager.prepare_store(keys_of(100, 16), writer)
    rig.manager.complete_store(keys_of(100, 16), writer, True)
    rig.step()
    while rig.manager.has_pending_work():
        rig.step()
        os.sched_yield()
    assert stall.hung() > 0
    # What could not be loaded is a miss for this request, so it is computed.
    while {rig.manager.lookup(key, reader) for key in keys} != {LookupResult.MISS}:
        rig.step()
    rig.manager.on_request_finished(reader)
    rig.manager.on_request_finished(writer)
    rig.close()
    assert stall.hung() > 0
    print("closed while it hung", flush=True)


class Stalled(Case):
    """A disk whose calls do not return, and a Redis that accepts connections and says nothing."""

    @unittest.skipIf(stall.why_not(), f"files cannot be made to hang here: {stall.why_not()}")
    def test_the_scheduler_goes_on_beside_a_disk_that_hangs(self):
        stall.run(__file__, scheduler_beside_a_disk_that_hangs, self.path)

    @unittest.skipIf(stall.why_not(), f"files cannot be made to hang here: {stall.why_not()}")
    def test_transfers_end_and_the_tier_closes_while_the_disk_hangs(self):
        self.assertIn("closed", stall.run(__file__, transfers_end_while_the_disk_hangs, self.path))
        # Its end was as sudden as a kill -9. What was stored before is there.
        loaded = self.rig().load(keys_of(0, 16))
        np.testing.assert_array_equal(np.stack(loaded), values_of(0, 16, SIZE))

    def test_a_level_that_does_not_answer_never_blocks_the_scheduler(self):
        import socket
        import threading

        server = socket.create_server(("127.0.0.1", 0))
        accepted = []
        threading.Thread(
            target=lambda: [accepted.append(server.accept()) for _ in range(64)], daemon=True
        ).start()
        url = f"redis://127.0.0.1:{server.getsockname()[1]}"
        more = {"levels": [{"kind": "redis", "where": url}], "timeout_s": 2.0}
        rig = Rig({**OURS, **more}, chunk_bytes=SIZE)
        keys, values = keys_of(0, 16), values_of(0, 16, SIZE)
        context = rig.request(keys)
        out = rig.manager.prepare_store(keys, context)
        rig.memory[out.store_spec.chunk_ids] = values
        begin = time.monotonic()
        rig.manager.complete_store(keys, context, True)
        rig.manager.on_request_finished(context)
        reader = rig.request(keys_of(50, 16))
        rounds = 0
        while time.monotonic() - begin < 120 and rig.manager.has_pending_work():
            for key in keys_of(50, 16):
                rig.manager.lookup(key, reader)
            rig.step()
            rounds += 1
            time.sleep(0.001)
        self.assertFalse(rig.manager.has_pending_work(), "the deadline has to end every transfer")
        # If one call of a round waited for the deadline, all would be over after a round or two.
        self.assertGreater(rounds, 5)
        rig.manager.on_request_finished(reader)
        begin = time.monotonic()
        rig.close()
        self.assertLess(time.monotonic() - begin, 30)
        server.close()


if __name__ == "__main__":
    unittest.main()
