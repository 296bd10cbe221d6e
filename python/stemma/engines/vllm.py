"""A secondary tier for vLLM's KV offloading, over a stemma.Store (tested with vLLM 0.33.0).

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec",
        "cpu_bytes_to_use": 8000000000,
        "secondary_tiers": [{"type": "StemmaTier", "module_path": "stemma.engines.vllm",
                             "path": "/nvme/kv", "capacity": "500GB"}]}}'

What vLLM's own `fs` tier leaves open is closed here: the directory never grows beyond its capacity,
each chunk has a checksum and a damaged one is a miss, and each transfer has a deadline, so a
stalled disk costs a bounded delay once.

Settings: `path` and `capacity`, or `levels`, a list of {kind, capacity, where, ...}; `timeout_s` of
a transfer (10); `namespace`, a name in front of the model's; `load_threads`, `store_threads`.

Each data-parallel replica has a folder of its own in a disk's directory, with the whole capacity.

After a restart vLLM finds what was stored if it gives a block the same hash again. It does with
sha256, its usual hash. With `--prefix-caching-hash-algo xxhash` it starts from a random number,
unless PYTHONHASHSEED is set; the tier warns then.

The scheduler's thread never waits: lookups read an index in memory, transfers are batches that run
by themselves. A level that cannot answer at once (shared, redis) is asked by a batch, and vLLM asks
again.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from vllm.logger import init_logger
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_offload.base import LookupResult, Medium, RequestOffloadingContext
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from stemma._errors import StemmaError
from stemma._store import Batch, Level, Rows, Status, layout_of
from stemma.engines._common import (
    knows_at_once,
    levels_of,
    open_store,
    safe_name,
    with_room_for,
)

logger = init_logger("vllm.stemma")

_HIT, _MISS, _RETRY = LookupResult.HIT, LookupResult.MISS, LookupResult.RETRY
_DONE = int(Status.DONE)
# Without PYTHONHASHSEED, a vLLM that has no fixed seed takes a random one.
_FIXED_SEED = getattr(kv_cache_utils, "DEFAULT_NONE_HASH_SEED", "")
_ANSWER_STEPS, _ANSWER_S = 8, 1.0  # How long a level's answer is believed: until both are over.
# Keys of a prompt that are looked up together; each further part is four times as large.
_FIRST_PART = 64


class _Job:
    """A transfer that vLLM waits for."""

    __slots__ = ("began", "job", "keys")

    def __init__(self, job: Any) -> None:
        self.job = job
        self.keys = list(job.keys)
        self.began = time.monotonic()


class _Ahead:
    """The keys that a request will ask for, in parts. vLLM stops at the first that is not there, so
    a prompt of which nothing is there costs one small part."""

    __slots__ = ("_keys", "_rest", "_size")

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = keys
        self._rest = iter(keys)
        self._size = _FIRST_PART

    def part_with(self, key: bytes) -> list[bytes]:
        """The part with this key; none if it does not come any more."""
        while True:
            try:
                part = list(itertools.islice(self._rest, self._size))
            except RuntimeError:  # The prompt has grown.
                part = list(self._keys)
            self._size *= 4
            if not part or key in part:
                return part


class _Question:
    """Keys that levels are being asked for."""

    __slots__ = ("keys",)

    def __init__(self, keys: list[bytes]) -> None:
        self.keys = keys


class StemmaTier(SecondaryTierManager):  # type: ignore[misc]
    """A stack of levels as a secondary tier. All methods run on the scheduler's thread and return
    at once, but drain_jobs() and shutdown(), which wait for transfers up to their deadlines."""

    medium: ClassVar[Any] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        path: str | None = None,
        capacity: int | float | str | None = None,
        levels: Sequence[Mapping[str, Any]] | None = None,
        timeout_s: float = 10.0,
        namespace: str = "vllm",
        load_threads: int = 4,
        store_threads: int = 2,
        locality: str | None = None,
        backpressure_detector: Any = None,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self._chunks = np.asarray(primary_kv_view)
        chunk_bytes = self._chunks.shape[1] * self._chunks.itemsize
        chosen = [
            _of_replica(one, offloading_spec.config.parallel)
            for one in with_room_for(levels_of(path, capacity, levels), chunk_bytes)
        ]
        self._at_once = knows_at_once(chosen)
        # vLLM's own description of what determines a chunk's bytes; its `fs` tier names its folder
        # after it.
        mapper = FileMapper.from_offloading_spec(
            root_dir="",
            offloading_spec=offloading_spec,
            blocks_per_file=offloading_spec.blocks_per_chunk,
            parallel_agnostic=True,
        )
        facts = mapper.get_run_config()
        self._store = open_store(
            chosen, timeout_s, load_threads=load_threads, store_threads=store_threads
        )
        self._space = self._store.namespace(
            safe_name(f"{namespace}/{facts['model_name']}/r{mapper.rank}"),
            layout=layout_of(plugin=1, chunk_bytes=chunk_bytes, **facts),
            value_bytes=chunk_bytes,
        )
        self._chunk_bytes = chunk_bytes
        self._jobs: dict[int, Batch] = {}
        self._finished: list[Any] = []
        # Questions of this step and their answers. Emptied when the step ends.
        self._answers: dict[bytes, Any] = {}
        self._ahead: dict[str, _Ahead] = {}
        # Keys that could not be loaded for a request: misses for it, or it would ask for ever.
        self._failed: dict[str, set[bytes]] = {}
        self._requests: set[str] = set()  # Those that have not ended.
        self._seed_checked = False
        # Keys that levels are asked about (None), and the answers, which are forgotten after a
        # while: when they came, in steps and in seconds, oldest first.
        self._asked: dict[bytes, bool | None] = {}
        self._to_ask: list[bytes] = []
        self._answered: deque[tuple[int, float, list[bytes]]] = deque()
        self._steps = 0

    # ---- Lookups --------------------------------------------------------------------------------

    def lookup(self, key: bytes, req_context: Any) -> Any:
        """HIT if a level has the chunk, RETRY if one has to be asked, else MISS."""
        try:
            answer = self._answers[key]
        except KeyError:
            answer = self._look(key, req_context)
        if self._failed and answer is _HIT and key in self._failed.get(req_context.req_id, ()):
            return _MISS
        return answer

    def _look(self, key: bytes, req_context: Any) -> Any:
        """Looks up the key together with those that its request will ask for next."""
        keys = self._next_keys(key, req_context) or [key]
        there = self._space.lookup(keys)
        answers = self._answers
        answers.update(dict.fromkeys(keys, _HIT))
        for i in np.flatnonzero(there == 0).tolist():
            answers[keys[i]] = _MISS if self._at_once else self._ask(keys[i])
        return answers[key]

    def _next_keys(self, key: bytes, req_context: Any) -> list[bytes]:
        known = getattr(req_context, "_offload_key_positions", None)
        if not known or key not in known:
            return []
        ahead = self._ahead.get(req_context.req_id)
        if ahead is None:
            ahead = self._ahead[req_context.req_id] = _Ahead(known)
        # In another order than the prompt's: whatever is left.
        return ahead.part_with(key) or [one for one in known if one not in self._answers]

    def _ask(self, key: bytes) -> Any:
        if key in self._asked:
            known = self._asked[key]
            return _RETRY if known is None else (_HIT if known else _MISS)
        self._asked[key] = None
        self._to_ask.append(key)
        return _RETRY

    # ---- Transfers ------------------------------------------------------------------------------

    def submit_store(self, job_metadata: Any) -> None:
        """Starts to store chunks of the primary tier."""
        job = _Job(job_metadata)
        self._forget(job.keys)  # They are there soon, whatever the levels said.
        position = getattr(job_metadata.req_context, "get_offload_key_position", lambda _: None)
        depths = [min(position(key) or 0, (1 << 30) - 1) for key in job.keys]
        self._submit(job, lambda rows: self._space.put(job.keys, rows, depths=depths, user=job))

    def submit_load(self, job_metadata: Any) -> None:
        """Starts to load chunks into the primary tier."""
        job = _Job(job_metadata)
        self._submit(job, lambda rows: self._space.get(job.keys, rows, user=job))

    def _submit(self, job: _Job, start: Any) -> None:
        try:
            batch = start(Rows(self._chunks, job.job.chunk_ids))
        except StemmaError as error:  # Too many transfers are under way: this one failed.
            logger.debug("stemma: transfer %d was not started: %s", job.job.job_id, error)
            self._fail(job, job.keys)
            self._finished.append(JobResult(job_id=job.job.job_id, success=False))
            return
        self._jobs[job.job.job_id] = batch

    def get_finished_jobs(self) -> Iterable[Any]:
        """Transfers that have ended since the last call."""
        for batch in self._store.drain():
            self._take(batch)
        finished, self._finished = self._finished, []
        return finished

    def _take(self, batch: Batch) -> None:
        end = batch.finished
        assert end is not None
        if isinstance(batch.user, _Question):
            for key, status in zip(batch.user.keys, end.results["status"].tolist()):
                self._asked[key] = status == _DONE
            self._answered.append((self._steps, time.monotonic(), batch.user.keys))
        if not isinstance(batch.user, _Job):
            return
        job = batch.user
        self._jobs.pop(job.job.job_id, None)
        loaded: Collection[bytes] | None = None
        if job.job.is_promotion and not end.ok:
            done = (end.results["status"] == _DONE).tolist()
            loaded = [key for key, there in zip(job.keys, done) if there] or None
            self._fail(job, [key for key, there in zip(job.keys, done) if not there])
        self._finished.append(
            JobResult(
                job_id=job.job.job_id,
                success=end.ok,
                successful_keys=loaded,
                transfer_time=time.monotonic() - job.began,
                transfer_bytes=end.bytes,
            )
        )

    def _fail(self, job: _Job, keys: Iterable[bytes]) -> None:
        if job.job.is_promotion and job.job.req_context.req_id in self._requests:
            self._failed.setdefault(job.job.req_context.req_id, set()).update(keys)

    def touch(self, keys: Collection[bytes], req_context: Any) -> None:
        """The chunks were used: levels keep them as if they had been read."""
        try:
            if keys:
                self._space.touch(list(keys))
        except StemmaError:  # Queues are full; reporting a use is only a hint.
            pass

    # ---- Steps and requests ---------------------------------------------------------------------

    def on_new_request(self, req_context: Any) -> Any:
        """A request comes. Chunks are stored as they are computed."""
        if not self._seed_checked:
            self._check_seed()
        self._requests.add(req_context.req_id)
        return RequestOffloadingContext()

    def _check_seed(self) -> None:
        """Warns, once, if the next process will give blocks other hashes. vLLM chooses the seed
        after it has made its tiers."""
        self._seed_checked = True
        if os.environ.get("PYTHONHASHSEED") is not None:
            return
        if _none_hash_seed() != _FIXED_SEED:
            logger.warning(
                "stemma: vLLM's block hashes begin with a random number in this process, so no "
                "other process and no restart will find the blocks it stores. Set "
                "PYTHONHASHSEED=0, or use --prefix-caching-hash-algo sha256."
            )

    def on_request_finished(self, req_context: Any) -> None:
        """A request has ended: what failed for it is forgotten."""
        self._requests.discard(req_context.req_id)
        self._failed.pop(req_context.req_id, None)

    def on_schedule_end(self, context: Any) -> None:
        """A step has ended: questions are sent, and the next step asks anew."""
        self._answers.clear()
        self._ahead.clear()
        self._steps += 1
        self._forget_answers()
        if self._to_ask:
            keys, self._to_ask = self._to_ask, []
            try:
                self._space.contains(keys, user=_Question(keys))
            except StemmaError:
                for key in keys:
                    self._asked[key] = False
                self._answered.append((self._steps, time.monotonic(), keys))

    def _forget_answers(self) -> None:
        """Others may have stored what was not there, or the level may have lost what was. The steps
        give the request that asked time to hear the answer, however long a step takes."""
        while self._answered:
            step, at, keys = self._answered[0]
            if self._steps - step < _ANSWER_STEPS or time.monotonic() - at < _ANSWER_S:
                return
            self._answered.popleft()
            self._forget(keys)

    def _forget(self, keys: Iterable[bytes]) -> None:
        if self._asked:
            for key in keys:
                if self._asked.get(key) is not None:
                    del self._asked[key]

    def has_pending_work(self) -> bool:
        """Whether something waits to be reported."""
        return bool(self._jobs or self._finished)

    def drain_jobs(self) -> None:
        """Waits until every transfer has ended, which it does by its deadline."""
        for batch in list(self._jobs.values()):
            if batch.wait() is not None:
                self._take(batch)

    def shutdown(self) -> None:
        """Flushes and closes the store. Afterwards nothing touches the primary tier's memory."""
        self._store.close()
        self._jobs.clear()
        self._chunks = np.empty((0, 0), np.uint8)  # vLLM unmaps memory that has no references.


def _none_hash_seed() -> object:
    """The seed of vLLM's block hashes; None where vLLM has no fixed one (before 0.33)."""
    get = getattr(kv_cache_utils, "get_none_hash_seed", None)
    return get() if get is not None else None


def _of_replica(level: Level, parallel: Any) -> Level:
    """A disk's directory is one process's: each data-parallel replica has a folder in it."""
    if level.kind != "disk" or level.where is None or parallel.data_parallel_size <= 1:
        return level
    folder = os.path.join(level.where, f"dp{parallel.data_parallel_index}")
    return dataclasses.replace(level, where=folder)
