"""Our tier beside vLLM's own `fs` tier, both in vLLM's real TieringOffloadingManager, in one run.

    python3 bench/python/vllm_tiers.py --dir FOLDER [--mib 256] [--rounds 3]

For chunks of 2 MiB and of 64 KiB: writes --mib of them (all cascades of a request until none is
under way) and reads them back (lookups and promotions, step after step, until every chunk is in the
primary tier). Then lookups of 2,048 keys that a tier has: how long the scheduler's thread spends in
tier.lookup() for them, and how long it is until each has an answer, steps included. Tiers take
turns, each with a fresh folder; the median of all rounds is shown. Both write what survives the
process, not a loss of power. What is read is compared with what was written.
"""

import argparse
import ctypes
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests" / "engines"))
import numpy as np  # noqa: E402
import shims  # noqa: E402,F401  (before vLLM)

CUDA = ("libnvrtc.so.13", "libc10_cuda.so", "libtorch_cuda.so")


def stand_in_for_cuda():
    """Lets vLLM's C functions for files be loaded on a machine without CUDA. vLLM's release links
    them to CUDA's libraries and uses nothing of them, so empty libraries of these names will do.
    Without them the `fs` tier falls back to Python, and would look slower than it is."""
    with tempfile.TemporaryDirectory() as folder:
        for name in CUDA:
            try:
                ctypes.CDLL(name)
            except OSError:
                made = os.path.join(folder, name)
                command = ["gcc", "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,{name}"]
                subprocess.run([*command, "-o", made], check=True)
                ctypes.CDLL(made)


stand_in_for_cuda()
from rig_vllm import OURS, LookupResult, Rig, keys_of  # noqa: E402
from vllm.v1.kv_offload.tiering.fs import io as fs_io  # noqa: E402

WAITING = {LookupResult.RETRY, LookupResult.HIT_PENDING}


def config(name, folder, mib):
    if name == "fs":
        return {"type": "fs", "root_dir": str(folder)}
    return {**OURS, "path": str(folder / "kv"), "capacity": (4 * mib + 256) << 20, "timeout_s": 60}


def transfer(name, folder, size, mib):
    """Seconds for writing and for reading."""
    count = (mib << 20) // size
    rig = Rig(config(name, folder, mib), chunks=count + 8, chunk_bytes=size)
    keys = keys_of(0, count)
    values = np.random.default_rng(7).integers(0, 256, (count, size), np.uint8)
    begin = time.perf_counter()
    rig.store(keys, values)
    written = time.perf_counter() - begin
    rig.memory[:] = 0
    rig.forget_primary()
    begin = time.perf_counter()
    context = rig.request(keys)
    while any([rig.manager.lookup(key, context) in WAITING for key in keys]):
        rig.step()
        time.sleep(0.0002)
    read = time.perf_counter() - begin
    where = rig.manager.prepare_load(keys, context).chunk_ids
    assert (rig.memory[where] == values).all(), name
    rig.manager.complete_load(keys, context)
    rig.manager.on_request_finished(context)
    rig.close()
    return written, read


class AtOnce:
    """In place of a tier's lookup: has everything, and does nothing to know it."""

    def __call__(self, key, context):
        return LookupResult.HIT


def through_manager(rig, keys):
    """Microseconds of manager.lookup() for all keys, which are in the secondary tier: vLLM's own
    books and the promotions that it prepares, with and without what the tier does."""
    times = {}
    for name, lookup in (("manager", rig.tier.lookup), ("manager alone", AtOnce())):
        rig.tier.lookup = lookup
        took = []
        for _ in range(10):
            rig.forget_primary()
            context = rig.request(keys)
            while True:
                begin = time.perf_counter()
                answers = [rig.manager.lookup(key, context) for key in keys]
                spent = time.perf_counter() - begin
                rig.step()
                if LookupResult.RETRY not in answers:
                    break
            assert all(answer is LookupResult.HIT_PENDING for answer in answers), set(answers)
            took.append(1e6 * spent)
            rig.manager.on_request_finished(context)
            rig.settle()
        times[name] = statistics.median(took)
    return times


def lookups(name, folder):
    """Microseconds on the scheduler's thread, and until all of 2,048 keys have an answer; the same
    of keys that are not there, of which vLLM asks for the first only; and through the manager."""
    size, count = 4096, 2048
    rig = Rig(config(name, folder, 64), chunks=count + 8, chunk_bytes=size)
    keys = keys_of(0, count)
    rig.store(keys, np.zeros((count, size), np.uint8))
    on_thread, until = [], []
    for _ in range(10):
        context = rig.request(keys)
        begin = time.perf_counter()
        spent = 0.0
        while True:
            at = time.perf_counter()
            answers = [rig.tier.lookup(key, context) for key in keys]
            spent += time.perf_counter() - at
            if LookupResult.RETRY not in answers:
                break
            rig.step()
        until.append(1e6 * (time.perf_counter() - begin))
        on_thread.append(1e6 * spent)
        assert all(answer is LookupResult.HIT for answer in answers), name
        rig.step()
        rig.manager.on_request_finished(context)
    absent = []
    for number in range(10):
        strange = keys_of(10_000 * (number + 1), count)
        context = rig.request(strange)
        begin = time.perf_counter()
        while rig.tier.lookup(strange[0], context) is LookupResult.RETRY:
            rig.step()
        absent.append(1e6 * (time.perf_counter() - begin))
        rig.step()
        rig.manager.on_request_finished(context)
    manager = through_manager(rig, keys)
    rig.close()
    return *(statistics.median(times) for times in (on_thread, until, absent)), manager


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--dir", required=True, type=pathlib.Path)
    arguments.add_argument("--mib", type=int, default=256)
    arguments.add_argument("--rounds", type=int, default=3)
    chosen = arguments.parse_args()
    print("load average at the beginning:", *(f"{one:.2f}" for one in os.getloadavg()))
    direct = "with O_DIRECT" if fs_io.probe_o_direct(chosen.dir) else "through the page cache"
    print(f"vLLM's fs tier: in {'C' if fs_io._HAS_FSIO_C else 'Python'}, {direct}")
    print(f"{'':14}{'write MB/s':>22}{'read MB/s':>22}")
    print(f"{'chunk':14}{'stemma':>8}{'fs':>7}{'ratio':>7}{'stemma':>8}{'fs':>7}{'ratio':>7}")
    for size in (2 << 20, 64 << 10):
        times = {"stemma": [], "fs": []}
        for number in range(chosen.rounds):
            for name, rows in times.items():
                folder = chosen.dir / f"{name}-{size}-{number}"
                folder.mkdir(parents=True)
                rows.append(transfer(name, folder, size, chosen.mib))
                shutil.rmtree(folder)
        speed = {
            name: [(chosen.mib << 20) / 1e6 / statistics.median(t) for t in zip(*rows)]
            for name, rows in times.items()
        }
        line = f"{size >> 10:6} KiB    "
        for i in (0, 1):
            a, b = speed["stemma"][i], speed["fs"][i]
            line += f"{a:8.0f}{b:7.0f}{a / b:7.2f}"
        print(line, flush=True)
    columns = "scheduler's thread    all answered    first is absent    manager    manager alone"
    print(f"lookup of 2,048 keys, us: {columns}")
    for name in ("stemma", "fs"):
        folder = chosen.dir / f"{name}-lookup"
        folder.mkdir(parents=True)
        on_thread, until, absent, manager = lookups(name, folder)
        around = f"{manager['manager']:11.0f}{manager['manager alone']:17.0f}"
        print(f"  {name:24} {on_thread:17.0f} {until:15.0f} {absent:18.0f}{around}", flush=True)
        shutil.rmtree(folder)
    print("load average at the end:", *(f"{one:.2f}" for one in os.getloadavg()))


main()
