"""What a full hit costs from Python: lease, block table and release of one cached prompt of 32,768
tokens.

    python3 bench/python/full_hit.py [--cc FULL_HIT] [--rounds 3000]

Prints, in microseconds, the median and the smallest of all rounds, for each kind of token array;
beside them the same in C++ (bench/python/full_hit.cc, with --cc), and the same step in vLLM where
vLLM can be imported: find the longest cached prefix in its BlockPool, take it, give it back. vLLM's
figure is given with and without the hashing of the prompt's blocks, which it does once a request.

Rounds of all kinds take turns, so that a busy machine is as busy for all of them.
"""

import argparse
import gc
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

import stemma

TOKENS, BLOCK = 32_768, 16


def ours():
    cache = stemma.PagedCache([stemma.Group(capacity_blocks=8192, block_tokens=BLOCK)])
    scope = stemma.Scope("m")
    prompt = np.random.default_rng(1).integers(0, 131_072, TOKENS).astype(np.uint32)
    with cache.lease(scope, prompt) as lease:
        lease.commit(TOKENS)
        first = lease.block_table()

    def cycle(tokens):
        with cache.lease(scope, tokens) as lease:
            return lease.block_table()

    assert (cycle(prompt)[: TOKENS // BLOCK - 1] == first[:-1]).all()
    kinds = {"stemma, numpy uint32": prompt, "stemma, numpy int64": prompt.astype(np.int64)}
    try:
        import torch

        kinds["stemma, torch int64"] = torch.from_numpy(prompt.astype(np.int64))
        kinds["stemma, torch int32"] = torch.from_numpy(prompt.astype(np.int32))
    except ImportError:
        pass
    return {name: (lambda tokens=tokens: cycle(tokens)) for name, tokens in kinds.items()}, prompt


def vllm(prompt):
    root = pathlib.Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(root / "python" / "tests" / "engines"))
    import shims  # noqa: F401  (before vLLM)
    from vllm.utils.hashing import sha256
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_utils import (
        BlockHash,
        hash_block_tokens,
        init_none_hash,
        make_block_hash_with_group_id,
    )

    init_none_hash(sha256)
    pool = BlockPool(8192, True, BLOCK)
    tokens = prompt.tolist()

    def hashes():
        found, parent = [], None
        for i in range(0, TOKENS, BLOCK):
            parent = hash_block_tokens(sha256, parent, tuple(tokens[i : i + BLOCK]), None)
            found.append(parent)
        return found

    known = hashes()
    blocks = pool.get_new_blocks(len(known))
    for block, one in zip(blocks, known):
        pool._insert_block_hash(make_block_hash_with_group_id(BlockHash(one), 0), block, BLOCK)
    pool.free_blocks(reversed(blocks))

    def cycle():
        found = []
        for one in known:
            hit = pool.get_cached_block(one, [0])
            if hit is None:
                break
            found.append(hit[0])
        pool.touch(found)
        table = [block.block_id for block in found]
        pool.free_blocks(reversed(found))
        return table

    assert len(cycle()) == TOKENS // BLOCK
    return {
        "vLLM BlockPool, hashes known": cycle,
        "vLLM BlockPool, with hashing": lambda: (hashes(), cycle()),
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--cc", help="the compiled full_hit.cc")
    arguments.add_argument("--rounds", type=int, default=3000)
    chosen = arguments.parse_args()
    runs, prompt = ours()
    try:
        runs.update(vllm(prompt))
    except Exception as error:  # Whatever keeps it from being imported.
        print(f"without vLLM: {type(error).__name__}: {str(error).splitlines()[-1]}")
    print("load average at the beginning:", *(f"{one:.2f}" for one in os.getloadavg()))
    times = {name: [] for name in runs}
    in_cc = []
    gc.disable()
    for part in range(10):
        for name, run in runs.items():
            slow = "vLLM" in name
            for _ in range(max(3, chosen.rounds // (100 if slow else 10))):
                begin = time.perf_counter_ns()
                run()
                times[name].append((time.perf_counter_ns() - begin) / 1000)
        if chosen.cc:
            command = [chosen.cc, str(TOKENS), str(chosen.rounds // 10)]
            out = subprocess.run(command, capture_output=True, text=True, check=True)
            in_cc.append([float(one) for one in out.stdout.split()])
    print(f"{'us':32} {'median':>9} {'smallest':>9}")
    if in_cc:
        median, smallest = statistics.median(m for m, _ in in_cc), min(s for _, s in in_cc)
        print(f"{'stemma, C++':32} {median:9.1f} {smallest:9.1f}")
    for name, all_of_them in times.items():
        print(f"{name:32} {statistics.median(all_of_them):9.1f} {min(all_of_them):9.1f}")
    print("load average at the end:", *(f"{one:.2f}" for one in os.getloadavg()))


main()
