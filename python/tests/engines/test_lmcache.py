"""The connector in LMCache's real loader and its real NativeConnectorL2Adapter."""

import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import shims  # noqa: F401  (before LMCache)
import torch
from directory import flip, inspect, stall, stats_until, used_bytes
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters.native_plugin_l2_adapter import (
    NativePluginL2AdapterConfig,
    _create_native_plugin_l2_adapter,
)
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

SIZE = 65536


def adapter(path, capacity="64MiB", **more):
    """The adapter by LMCache's own loader; `path` None leaves the levels to `more`."""
    place = {} if path is None else {"path": str(path), "capacity": capacity}
    config = NativePluginL2AdapterConfig.from_dict(
        {
            "type": "native_plugin",
            "module_path": "stemma.engines.lmcache",
            "class_name": "StemmaConnector",
            "adapter_params": {**place, **more},
        }
    )
    return _create_native_plugin_l2_adapter(config)


def keys_of(start, count):
    return [
        ObjectKey(chunk_hash=bytes.fromhex(f"{i:064x}"), model_name="org/model-" + "x" * 80, kv_rank=0)
        for i in range(start, start + count)
    ]


def objects_of(start, count, size=SIZE, empty=False):
    made = []
    for i in range(start, start + count):
        generator = torch.Generator().manual_seed(i)
        raw = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
        if empty:
            raw.zero_()
        metadata = MemoryObjMetadata(
            shape=raw.shape, dtype=raw.dtype, address=0, phy_size=size, ref_count=1, pin_count=0,
            fmt=MemoryFormat.KV_2LTD,
        )
        made.append(TensorMemoryObj(raw, metadata, None))
    return made


def wait(fd, ask, timeout=60):
    """Waits for an answer as LMCache's controllers do: poll the descriptor, then ask."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        select.select([fd], [], [], 0.1)
    raise AssertionError("LMCache never heard of the end")


class Connector(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "kv"

    def store(self, to, start, count):
        objects = objects_of(start, count)  # They live until the end, as in LMCache's controllers.
        task = to.submit_store_task(keys_of(start, count), objects)
        result = wait(to.get_store_event_fd(), to.pop_completed_store_tasks)[task]
        del objects
        return result

    def look(self, at, start, count):
        task = at.submit_lookup_and_lock_task(keys_of(start, count), {})
        found = wait(at.get_lookup_and_lock_event_fd(), lambda: at.query_lookup_and_lock_result(task))
        return [found.test(i) for i in range(count)]

    def load(self, source, start, count, size=SIZE):
        objects = objects_of(start, count, size, empty=True)
        task = source.submit_load_task(keys_of(start, count), objects)
        loaded = wait(source.get_load_event_fd(), lambda: source.query_load_result(task))
        wanted = objects_of(start, count, size)
        result = []
        for i in range(count):
            equal = torch.equal(objects[i].raw_data, wanted[i].raw_data)
            self.assertTrue(equal or not loaded.test(i), "bytes of something else")
            result.append(loaded.test(i))
        return result

    def test_objects_come_back(self):
        to = adapter(self.path)
        self.addCleanup(to.close)
        self.assertTrue(self.store(to, 0, 16).is_successful())
        self.assertEqual(self.look(to, 8, 16), [True] * 8 + [False] * 8)
        self.assertEqual(self.load(to, 0, 16), [True] * 16)
        self.assertEqual(self.load(to, 100, 2), [False] * 2)
        self.assertEqual(self.load(to, 0, 2, size=SIZE // 2), [False] * 2)
        self.assertEqual(self.load(to, 0, 2, size=SIZE * 2), [False] * 2)
        to.delete(keys_of(0, 4))
        self.assertEqual(self.look(to, 0, 8), [False] * 4 + [True] * 4)

    def test_capacity_is_never_exceeded(self):
        capacity = 8 << 20
        to = adapter(self.path, capacity=capacity)
        self.addCleanup(to.close)
        for start in range(0, 256, 32):
            self.store(to, start, 32)
            self.assertLessEqual(used_bytes(self.path), capacity + (1 << 20))
            (level,) = to._client.stats()["levels"]
            self.assertLessEqual(level["used_bytes"], capacity)
        self.assertGreater(level["evictions"], 50)

    def test_a_smaller_capacity_bounds_what_lies_there(self):
        to, capacity = adapter(self.path), 2 << 20
        self.assertTrue(self.store(to, 0, 64).is_successful())
        to.close()
        self.assertEqual(len(inspect(self.path)[1]["list"]), 64)
        to = adapter(self.path, capacity=capacity, max_object="512KiB")
        self.addCleanup(to.close)
        (level,) = to._client.stats()["levels"]
        self.assertLessEqual(level["used_bytes"], capacity)
        self.assertLessEqual(used_bytes(self.path), capacity + (1 << 20))
        there = self.look(to, 0, 64)
        self.assertTrue(0 < sum(there) < 32, sum(there))
        self.assertEqual(self.load(to, 0, 64), there)
        self.store(to, 100, 64)
        (level,) = to._client.stats()["levels"]
        self.assertLessEqual(level["used_bytes"], capacity)

    def test_other_layouts_in_one_directory_are_misses(self):
        to = adapter(self.path, layout="bf16 tp1")
        self.assertTrue(self.store(to, 0, 8).is_successful())
        to.close()
        other = adapter(self.path, layout="fp8 tp1")
        self.assertEqual(self.look(other, 0, 8), [False] * 8)
        self.assertEqual(self.load(other, 0, 8), [False] * 8)
        other.close()
        again = adapter(self.path, layout="bf16 tp1")
        self.addCleanup(again.close)
        self.assertEqual(self.load(again, 0, 8), [True] * 8)

    def test_a_flipped_byte_is_a_miss(self):
        to = adapter(self.path)
        self.store(to, 0, 4)
        to.close()
        self.assertEqual(flip(self.path, bytes(objects_of(2, 1)[0].raw_data[500:600].tolist())), 1)
        to = adapter(self.path)
        self.addCleanup(to.close)
        self.assertEqual(self.load(to, 0, 4), [True, True, False, True])

    def test_kill_9_and_restart_find_what_was_stored(self):
        script = (
            "import sys, time; sys.path.insert(0, %r)\n"
            "from test_lmcache import *\n"
            "case = Connector(); to = adapter(%r)\n"
            "assert case.store(to, 0, 16).is_successful()\n"
            "print('stored', flush=True); time.sleep(600)\n" % (os.path.dirname(__file__), str(self.path))
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout:
                if line == "stored\n":
                    break
            child.send_signal(signal.SIGKILL)
        to = adapter(self.path)
        self.addCleanup(to.close)
        self.assertEqual(self.load(to, 0, 16), [True] * 16)

    def test_inspect_lists_and_verifies_it_and_scrubbing_finds_damage(self):
        to = adapter(self.path, namespace="shop")
        self.assertTrue(self.store(to, 0, 16).is_successful())
        to.close()
        code, found = inspect(self.path, "verify")
        self.assertEqual((code, found["damaged"], len(found["list"])), (0, 0, 16))
        self.assertEqual([(s["name"], s["entries"]) for s in found["namespaces"]], [("shop", 16)])
        level = {"kind": "disk", "where": str(self.path), "capacity": "64MiB", "scrub": "100GB"}
        to = adapter(None, None, levels=[level], namespace="shop")
        self.addCleanup(to.close)
        self.assertEqual(self.look(to, 0, 16), [True] * 16)
        self.assertEqual(flip(self.path, bytes(objects_of(11, 1)[0].raw_data[500:600].tolist())), 1)
        level = stats_until(to._client.stats, lambda now: now["entries"] == 15)
        self.assertEqual(level["entries"], 15)
        self.assertEqual(self.look(to, 0, 16), [i != 11 for i in range(16)])

    @unittest.skipIf(stall.why_not(), f"files cannot be made to hang here: {stall.why_not()}")
    def test_lmcache_goes_on_beside_a_disk_that_hangs(self):
        stall.run(__file__, controllers_beside_a_disk_that_hangs, self.path)

    @unittest.skipIf(stall.why_not(), f"files cannot be made to hang here: {stall.why_not()}")
    def test_tasks_end_and_the_adapter_closes_while_the_disk_hangs(self):
        self.assertIn("closed", stall.run(__file__, tasks_end_while_the_disk_hangs, self.path))
        to = adapter(self.path)
        self.addCleanup(to.close)
        self.assertEqual(self.load(to, 0, 16), [True] * 16)

    def test_a_connector_that_is_used_after_its_end_says_so(self):
        to = adapter(self.path)
        client = to._client
        to.close()
        number = client.submit_batch_exists(["a"])
        self.assertGreater(number, 0)
        self.assertEqual(client.drain_completions(), [])
        client.close()


def controllers_beside_a_disk_that_hangs(path):
    """Under stall.py. Deadlines are an hour: if a call waited for the disk, this would not
    return."""
    case, to = Connector(), adapter(path, timeout_s=3600)
    assert case.store(to, 0, 16).is_successful()
    stall.hang()
    into, more = objects_of(0, 16, empty=True), objects_of(100, 16)
    load = to.submit_load_task(keys_of(0, 16), into)
    store = to.submit_store_task(keys_of(100, 16), more)
    while stall.hung() == 0:
        os.sched_yield()
    for _ in range(50):  # Questions are answered meanwhile.
        assert case.look(to, 8, 16) == [True] * 8 + [False] * 8
        assert to.query_load_result(load) is None
        assert not to.pop_completed_store_tasks()
    stall.go_on()
    loaded = wait(to.get_load_event_fd(), lambda: to.query_load_result(load))
    assert all(loaded.test(i) for i in range(16))
    assert all(torch.equal(a.raw_data, b.raw_data) for a, b in zip(into, objects_of(0, 16)))
    done = wait(to.get_store_event_fd(), to.pop_completed_store_tasks)
    assert done[store].is_successful()
    assert case.load(to, 100, 16) == [True] * 16
    to.close()


def tasks_end_while_the_disk_hangs(path):
    """Under stall.py."""
    case, to = Connector(), adapter(path, timeout_s=2)
    assert case.store(to, 0, 16).is_successful()
    stall.hang()
    into, more = objects_of(0, 16, empty=True), objects_of(100, 16)
    load = to.submit_load_task(keys_of(0, 16), into)
    store = to.submit_store_task(keys_of(100, 16), more)
    loaded = wait(to.get_load_event_fd(), lambda: to.query_load_result(load))
    assert not any(loaded.test(i) for i in range(16))
    done = wait(to.get_store_event_fd(), to.pop_completed_store_tasks)
    assert not done[store].is_successful()
    assert stall.hung() > 0
    to.close()
    assert stall.hung() > 0
    print("closed while it hung", flush=True)


if __name__ == "__main__":
    unittest.main()
