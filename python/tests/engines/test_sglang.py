"""The backend through SGLang's real factory, over the real methods of its host pool."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import types
import unittest

import shims  # noqa: F401  (first)
import torch
from directory import flip, inspect, stall, stats_until, used_bytes
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory
from sglang.srt.runtime_context import get_parallel

import stemma

PAGE, LAYERS, HEADS, DIM, SIZE = 16, 4, 2, 64, 512


def pool(layout, dtype=torch.bfloat16):
    """SGLang's host pool with its buffer in ordinary memory: its constructor wants a device."""
    made = MHATokenToKVPoolHost.__new__(MHATokenToKVPoolHost)
    shape = (2, LAYERS, SIZE, HEADS, DIM) if layout == "layer_first" else (2, SIZE, LAYERS, HEADS, DIM)
    made.kv_buffer = torch.zeros(shape, dtype=dtype)
    made.layout, made.page_size, made.layer_num, made.size = layout, PAGE, LAYERS, SIZE
    made.head_num, made.head_dim, made.v_head_dim, made.dtype = HEADS, DIM, DIM, dtype
    made.device, made.pin_memory = "cpu", False
    return made


def backend(path, host_pool, capacity="64MiB", rank=0, **more):
    """The backend by SGLang's own factory; `path` None leaves the levels to `more`."""
    place = {} if path is None else {"path": str(path), "capacity": capacity}
    config = HiCacheStorageConfig(
        tp_rank=rank, tp_size=2, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
        is_mla_model=False, enable_storage_metrics=False,
        is_page_first_layout=host_pool.layout != "layer_first", model_name="org/model",
        extra_config={
            "backend_name": "stemma", "module_path": "stemma.engines.sglang",
            "class_name": "StemmaStorage", **place, **more,
        },
    )
    made = StorageBackendFactory.create_backend("dynamic", config, host_pool)
    made.register_mem_pool_host(host_pool)
    return made


def keys_of(start, count):
    return [f"{i:064x}" for i in range(start, start + count)]


def fill(host_pool, start, count):
    """Pages that can be told from every other; returns their indices in the pool."""
    indices = torch.arange(count * PAGE)
    for i in range(count):
        flat = host_pool.get_dummy_flat_data_page()
        generator = torch.Generator().manual_seed(start + i)
        flat.copy_(torch.randint(0, 100, flat.shape, generator=generator).to(flat.dtype))
        host_pool.set_from_flat_data_page(i * PAGE, flat)
    return indices


class Backend(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "kv"

    def check(self, layout, v1):
        host = pool(layout)
        to = backend(self.path / f"{layout}{v1}", host, interface_v1=v1)
        self.addCleanup(to.close)
        indices = fill(host, 0, 8)
        wanted = host.kv_buffer.clone()
        if v1:
            self.assertEqual(to.batch_set_v1(keys_of(0, 8), indices), [True] * 8)
        else:
            pages = [host.get_data_page(i * PAGE, flat=True) for i in range(8)]
            self.assertTrue(to.batch_set(keys_of(0, 8), pages))
        self.assertEqual(to.batch_exists(keys_of(0, 12)), 8)
        self.assertTrue(to.exists(keys_of(3, 1)[0]))
        self.assertEqual(to.batch_exists(keys_of(50, 2) + keys_of(0, 2)), 0)
        host.kv_buffer.zero_()
        if v1:
            self.assertEqual(to.batch_get_v1(keys_of(0, 10), torch.arange(10 * PAGE)),
                             [True] * 8 + [False] * 2)
        else:
            into = [host.get_dummy_flat_data_page() for _ in range(9)]
            found = to.batch_get(keys_of(0, 9), into)
            self.assertIsNone(found[8])
            for i in range(8):
                host.set_from_flat_data_page(i * PAGE, found[i])
        self.assertTrue(torch.equal(host.kv_buffer, wanted))

    def test_pages_come_back_in_every_layout_and_by_both_interfaces(self):
        for layout in ("layer_first", "page_first"):
            for v1 in (0, 1):
                with self.subTest(layout=layout, v1=v1):
                    self.check(layout, v1)

    def test_other_layouts_and_ranks_never_meet(self):
        host = pool("page_first")
        to = backend(self.path, host, interface_v1=1)
        to.batch_set_v1(keys_of(0, 4), fill(host, 0, 4))
        self.assertEqual(to.batch_exists(keys_of(0, 4)), 4)
        other = backend(self.path, host, rank=1, interface_v1=1)
        self.assertEqual(other.batch_exists(keys_of(0, 4)), 0)
        other.close()
        with self.assertRaises(stemma.Busy):
            backend(self.path, host)
        to.close()
        another = backend(self.path, pool("page_first", torch.float16), interface_v1=1)
        self.assertEqual(another.batch_exists(keys_of(0, 4)), 0)
        another.clear()
        another.close()
        again = backend(self.path, host, interface_v1=1)
        self.assertEqual(again.batch_exists(keys_of(0, 4)), 4)
        again.clear()
        self.assertEqual(again.batch_exists(keys_of(0, 4)), 0)
        again.close()

    def test_capacity_flipped_bytes_and_closed_backends(self):
        host = pool("page_first")
        capacity = 4 << 20
        to = backend(self.path, host, capacity=capacity, interface_v1=1)
        for start in range(0, 640, 32):
            to.batch_set_v1(keys_of(start, 32), fill(host, start, 32))
            self.assertLessEqual(used_bytes(self.path), capacity + (1 << 20))
            (level,) = to.stats()["levels"]
            self.assertLessEqual(level["used_bytes"], capacity)
        self.assertGreater(level["evictions"], 50)
        to.close()
        self.assertEqual(to.batch_exists(keys_of(0, 4)), 0)
        self.assertEqual(to.batch_set_v1(keys_of(0, 4), torch.arange(4 * PAGE)), [False] * 4)
        needle = host.get_data_page(5 * PAGE, flat=True).view(torch.uint8)[:200].numpy().tobytes()
        self.assertEqual(flip(self.path, needle), 1)
        to = backend(self.path, host, capacity=capacity, interface_v1=1)
        found = to.batch_get_v1(keys_of(608, 32), torch.arange(32 * PAGE))
        self.assertEqual(found.index(False), 5)
        self.assertEqual(found.count(False), 1)
        to.close()

    def test_a_smaller_capacity_bounds_what_lies_there(self):
        host, capacity = pool("page_first"), 1 << 20
        to = backend(self.path, host, interface_v1=1)
        for start in range(0, 128, 32):
            done = to.batch_set_v1(keys_of(start, 32), fill(host, start, 32))
            self.assertEqual(done, [True] * 32)
        to.close()
        (folder,) = self.path.iterdir()
        self.assertEqual(len(inspect(folder)[1]["list"]), 256)  # K and V apart.
        to = backend(self.path, host, capacity=capacity, interface_v1=1)
        self.addCleanup(to.close)
        (level,) = to.stats()["levels"]
        self.assertLessEqual(level["used_bytes"], capacity)
        self.assertTrue(0 < level["entries"] < 128, level["entries"])
        self.assertLessEqual(used_bytes(self.path), capacity + (1 << 20))
        to.batch_set_v1(keys_of(1000, 32), fill(host, 1000, 32))
        (level,) = to.stats()["levels"]
        self.assertLessEqual(level["used_bytes"], capacity)

    def test_replicas_of_one_server_have_a_folder_each(self):
        host = pool("page_first")
        made = []
        for replica in range(3):  # What SGLang's launcher says in each process of --dp-size 3.
            with get_parallel().override(dp_rank=replica):
                made.append(backend(self.path, host, interface_v1=1))
                self.addCleanup(made[-1].close)
        for replica, one in enumerate(made):
            keys, indices = keys_of(100 * replica, 4), fill(host, 100 * replica, 4)
            self.assertEqual(one.batch_set_v1(keys, indices), [True] * 4)
        found = [[one.batch_exists(keys_of(100 * i, 4)) for i in range(3)] for one in made]
        self.assertEqual(found, [[4, 0, 0], [0, 4, 0], [0, 0, 4]])
        names = sorted(folder.name.split("-dp0")[1] for folder in self.path.iterdir())
        self.assertEqual(names, ["", "-replica1", "-replica2"])
        made[1].close()
        with get_parallel().override(dp_rank=1):  # It finds its own folder after a restart.
            again = backend(self.path, host, interface_v1=1)
            self.addCleanup(again.close)
        self.assertEqual(again.batch_exists(keys_of(100, 4)), 4)

    def test_servers_of_their_own_name_their_folder(self):
        host = pool("page_first")
        for replica in (0, 1):
            self.addCleanup(backend(self.path, host, replica=replica).close)
        for replica, error in ((1, stemma.Busy), ("one", ValueError), (-1, ValueError)):
            with self.assertRaises(error):
                backend(self.path, host, replica=replica)

    def test_kill_9_and_restart_find_what_was_stored(self):
        script = (
            "import sys, time; sys.path.insert(0, %r)\n"
            "from test_sglang import *\n"
            "host = pool('page_first'); to = backend(%r, host, interface_v1=1)\n"
            "assert all(to.batch_set_v1(keys_of(0, 8), fill(host, 0, 8)))\n"
            "print('stored', flush=True); time.sleep(600)\n" % (os.path.dirname(__file__), str(self.path))
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout:
                if line == "stored\n":
                    break
            child.send_signal(signal.SIGKILL)
        host = pool("page_first")
        fill(host, 0, 8)
        wanted = host.kv_buffer.clone()
        host.kv_buffer.zero_()
        to = backend(self.path, host, interface_v1=1)
        self.assertEqual(to.batch_get_v1(keys_of(0, 8), torch.arange(8 * PAGE)), [True] * 8)
        self.assertTrue(torch.equal(host.kv_buffer, wanted))
        to.close()

    def test_inspect_lists_and_verifies_it_and_scrubbing_finds_damage(self):
        host = pool("page_first")
        to = backend(self.path, host, interface_v1=1)
        self.assertEqual(to.batch_set_v1(keys_of(0, 8), fill(host, 0, 8)), [True] * 8)
        to.close()
        (folder,) = (one for one in self.path.iterdir() if one.is_dir())  # Of the rank.
        code, found = inspect(folder, "verify")
        self.assertEqual((code, found["damaged"], len(found["list"])), (0, 0, 16))  # K and V apart.
        (space,) = found["namespaces"]
        self.assertTrue(space["name"].startswith("sglang/org/model/tp0"), space)
        level = {"kind": "disk", "where": str(self.path), "capacity": "64MiB", "scrub": "100GB"}
        to = backend(None, host, levels=[level], interface_v1=1)
        self.addCleanup(to.close)
        self.assertEqual(to.batch_exists(keys_of(0, 8)), 8)
        needle = host.get_data_page(5 * PAGE, flat=True).view(torch.uint8)[:200].numpy().tobytes()
        self.assertEqual(flip(self.path, needle), 1)
        level = stats_until(to.stats, lambda now: now["entries"] == 15)
        self.assertEqual(level["entries"], 15)
        found = to.batch_get_v1(keys_of(0, 8), torch.arange(8 * PAGE))
        self.assertEqual(found, [i != 5 for i in range(8)])

    @unittest.skipIf(stall.why_not(), f"files cannot be made to hang here: {stall.why_not()}")
    def test_calls_end_by_their_deadline_while_the_disk_hangs(self):
        self.assertIn("closed", stall.run(__file__, calls_end_while_the_disk_hangs, self.path))
        host = pool("page_first")
        fill(host, 0, 8)
        wanted = host.kv_buffer.clone()
        host.kv_buffer.zero_()
        to = backend(self.path, host, interface_v1=1)
        self.addCleanup(to.close)
        self.assertEqual(to.batch_get_v1(keys_of(0, 8), torch.arange(8 * PAGE)), [True] * 8)
        self.assertTrue(torch.equal(host.kv_buffer, wanted))

    def test_the_controllers_own_page_functions(self):
        try:
            from sglang.srt.managers.cache_controller import HiCacheController
        except Exception as error:  # It imports models, which need more than is installed.
            self.skipTest(f"SGLang's HiCacheController cannot be imported: {str(error).splitlines()[-1]}")
        host = pool("page_first")
        to = backend(self.path, host, interface_v1=1)
        self.addCleanup(to.close)
        controller = types.SimpleNamespace(storage_backend=to)
        indices = fill(host, 0, 4)
        HiCacheController._page_set_zero_copy(controller, keys_of(0, 4), indices)
        operation = types.SimpleNamespace(request_id="r")
        got = HiCacheController._page_get_zero_copy(controller, operation, keys_of(0, 6),
                                                    torch.arange(6 * PAGE))
        self.assertEqual(got, 4)


def calls_end_while_the_disk_hangs(path):
    """Under stall.py. HiCache calls on threads of its own, which may wait, but not for ever."""
    host = pool("page_first")
    to = backend(path, host, interface_v1=1, timeout_s=2)
    indices = fill(host, 0, 8)
    assert to.batch_set_v1(keys_of(0, 8), indices) == [True] * 8
    stall.hang()
    assert to.batch_exists(keys_of(0, 12)) == 8  # Answered without the disk.
    assert to.batch_set_v1(keys_of(100, 8), indices) == [False] * 8
    assert to.batch_get_v1(keys_of(0, 8), indices) == [False] * 8
    assert stall.hung() > 0
    to.close()
    assert stall.hung() > 0
    print("closed while it hung", flush=True)


if __name__ == "__main__":
    unittest.main()
