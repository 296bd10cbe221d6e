"""vLLM's real TieringOffloadingManager over its real shared region, with secondary tiers by its
factory."""

import os
import types
import uuid

import numpy as np
import shims  # noqa: F401  (before vLLM)
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
from vllm.v1.kv_offload.tiering.manager import (
    CPUPrimaryTierOffloadingManager,
    TieringOffloadingManager,
)

OURS = {"type": "StemmaTier", "module_path": "stemma.engines.vllm"}


def spec(chunk_bytes, model="test/model", dtype="bfloat16", replicas=1, replica=0):
    config = OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=16, layer_names=("layer.0",), group_id=0),),
        worker_kv_bytes_per_block=chunk_bytes,
        enable_kv_cache_events=False,
        extra_config={},
        engine_id="engine",
        model=OffloadingModelConfig(name=model, dtype=dtype),
        cache=OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1,
            data_parallel_index=replica, data_parallel_size=replicas, data_parallel_rank_local=None,
            is_parallelism_agnostic=True,
        ),
    )
    return types.SimpleNamespace(
        config=config, blocks_per_chunk=1,
        kv_events_config=types.SimpleNamespace(enable_kv_cache_events=False),
    )


class Rig:
    """A manager with one secondary tier. `chunks` places in the primary tier, `chunk_bytes`
    each."""

    def __init__(self, tier_config, chunks=64, chunk_bytes=65536, **about):
        self.chunk_bytes = chunk_bytes
        self.region = SharedOffloadRegion(
            engine_id=uuid.uuid4().hex, num_chunks=chunks, rank=None,
            kv_bytes_per_chunk=chunk_bytes, cpu_page_size=chunk_bytes,
        )
        self.primary = CPUPrimaryTierOffloadingManager(num_chunks=chunks, mmap_region=self.region)
        view = self.primary.get_kv_memoryview()
        self.memory = np.asarray(view).view(np.uint8)  # vLLM's is of int8.
        self.tier = SecondaryTierFactory.create_secondary_tier(
            tier_config, view, spec(chunk_bytes, **about)
        )
        self.manager = TieringOffloadingManager(self.primary, [self.tier])
        self.requests = 0

    def request(self, keys):
        self.requests += 1
        context = ReqContext(req_id=f"request-{self.requests}")
        for i, key in enumerate(keys):
            context.set_offload_key_position(key, 16 * (i + 1))
        self.manager.on_new_request(context)
        return context

    def step(self):
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def settle(self):
        """Steps until no transfer is under way."""
        while self.manager.has_pending_work():
            self.step()
            os.sched_yield()

    def store(self, keys, values):
        """A request computes chunks, which cascade into the secondary tier."""
        context = self.request(keys)
        out = self.manager.prepare_store(keys, context)
        assert out is not None and len(out.keys_to_store) == len(keys)
        self.memory[out.store_spec.chunk_ids] = values
        self.manager.complete_store(keys, context, True)
        self.manager.on_request_finished(context)
        self.settle()

    def forget_primary(self):
        """The primary tier forgets everything; what lies below stays."""
        self.manager.reset_cache()
        self.manager.on_reset_flushed()

    def load(self, keys, steps=1_000_000):
        """A request asks for chunks until each is there or is not. Returns the value of each, or
        None."""
        context = self.request(keys)
        for _ in range(steps):
            answers = [self.manager.lookup(key, context) for key in keys]
            if not {LookupResult.RETRY, LookupResult.HIT_PENDING} & set(answers):
                break
            self.step()
            os.sched_yield()
        else:
            raise AssertionError("the request never got an answer")
        found = [key for key, answer in zip(keys, answers) if answer is LookupResult.HIT]
        values = dict.fromkeys(keys)
        if found:
            where = self.manager.prepare_load(found, context).chunk_ids
            for key, chunk in zip(found, where):
                values[key] = self.memory[chunk].copy()
            self.manager.complete_load(found, context)
        self.manager.on_request_finished(context)
        self.settle()
        return [values[key] for key in keys]

    def close(self):
        self.settle()
        self.memory = None
        self.manager.shutdown()


def keys_of_prompt(algorithm, count):
    """Keys that vLLM itself makes of a prompt, as its engine does when it starts."""
    hash_function = get_hash_fn_by_name(algorithm)
    kv_cache_utils.init_none_hash(hash_function)
    block, keys = None, []
    for i in range(count):
        tokens = range(16 * i, 16 * (i + 1))
        block = kv_cache_utils.hash_block_tokens(hash_function, block, tokens)
        keys.append(make_offload_key(block, 0))
    return keys


def keys_of(start, count, group=0):
    return [
        make_offload_key(bytes.fromhex(f"{i:064x}"), group) for i in range(start, start + count)
    ]


def values_of(start, count, size):
    """Bytes that tell each chunk from every other."""
    return np.stack(
        [np.random.default_rng(i).integers(0, 256, size, np.uint8) for i in range(start, start + count)]
    )
