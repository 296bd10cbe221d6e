"""A storage backend for SGLang's HiCache, over a stemma.Store.

    --enable-hierarchical-cache --hicache-storage-backend dynamic
    --hicache-storage-backend-extra-config
      '{"backend_name": "stemma", "module_path": "stemma.engines.sglang",
        "class_name": "StemmaStorage", "interface_v1": 1, "path": "/nvme/kv", "capacity": "500GB"}'

The store is bounded, each page has a checksum and a damaged one is a miss, and each call has a
deadline.

Settings: `path` and `capacity`, or `levels`, a list of {kind, capacity, where, ...}; `timeout_s` of
a call (5); `namespace`; `load_threads`, `store_threads`; `replica`.

A disk's directory belongs to one process, so each rank has a folder of its own in it, and so has
each replica of `--dp-size`. Which replica this is comes from SGLang; servers that you start apart
from each other on one machine share a path if each has another number as `replica`.

Threading: thread-safe. Calls wait for their pages, at most timeout_s: SGLang makes them on threads
of its own for prefetching and backing up, never on the scheduler's. Pools beside the KV (v2 calls:
Mamba states, indexers) are not stored; SGLang refuses such models with this backend.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from stemma._errors import InvalidArgument, StemmaError
from stemma._store import Batch, Level, Namespace, Status, layout_of
from stemma.engines._common import (
    knows_at_once,
    levels_of,
    open_store,
    safe_name,
    short_key,
    with_room_for,
)

_DONE = int(Status.DONE)
_RANKS = ("tp_rank", "tp_size", "pp_rank", "pp_size", "attn_cp_rank", "attn_cp_size", "dp_rank")
_POOL_FACTS = ("layout", "page_size", "layer_num", "head_num", "head_dim", "kv_lora_rank", "dtype")


class StemmaStorage(HiCacheStorage):  # type: ignore[misc]
    """What HiCache calls. Keys are hashes of pages and all before them."""

    def __init__(self, storage_config: Any, kwargs: Mapping[str, Any] | None = None) -> None:
        settings = dict(storage_config.extra_config or {})
        facts = {name: getattr(storage_config, name, 0) for name in _RANKS}
        rank = "-".join(f"{name.split('_')[0]}{facts[name]}" for name in _RANKS if "rank" in name)
        levels = levels_of(
            settings.get("path"), settings.get("capacity"), settings.get("levels")
        )
        folder = rank + _of_replica(settings.get("replica"), facts["dp_rank"])
        chosen = [_in_folder(one, folder) for one in with_room_for(levels, 64 << 20)]
        self._at_once = knows_at_once(chosen)
        self._timeout_s = float(settings.get("timeout_s", 5.0))
        self._store = open_store(
            chosen,
            self._timeout_s,
            load_threads=int(settings.get("load_threads", 4)),
            store_threads=int(settings.get("store_threads", 2)),
        )
        model = storage_config.model_name or "model"
        self._name = safe_name(f"{settings.get('namespace', 'sglang')}/{model}/{rank}")
        self._facts = facts | {
            "model": model,
            "mla": storage_config.is_mla_model,
            "page_first": storage_config.is_page_first_layout,
            "dcp": [getattr(storage_config, "dcp_rank", 0), getattr(storage_config, "dcp_size", 1)],
        }
        self._v1 = bool(settings.get("interface_v1", 0))
        self._parts = 1
        self._space = self._namespace({})

    def _namespace(self, more: Mapping[str, object]) -> Namespace:
        return self._store.namespace(self._name, layout=layout_of(plugin=1, **self._facts, **more))

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """HiCache shows its host memory. How it arranges a page becomes a part of the layout."""
        super().register_mem_pool_host(mem_pool_host)
        there = [name for name in _POOL_FACTS if hasattr(mem_pool_host, name)]
        known = {name: str(getattr(mem_pool_host, name)) for name in there}
        self._parts = self._parts_of_a_page()
        self._space = self._namespace({"pool": known, "parts": self._parts})

    # ---- One batch ------------------------------------------------------------------------------

    def _put(self, keys: Sequence[str], values: Sequence[Any]) -> list[bool]:
        return self._run(lambda: self._space.put([short_key(k) for k in keys], values), len(keys))

    def _get(self, keys: Sequence[str], into: Sequence[Any]) -> list[bool]:
        sizes = np.fromiter((_size(one) for one in into), np.uint64, len(into))
        names = [short_key(key) for key in keys]
        return self._run(lambda: self._space.get(names, into), len(keys), sizes)

    def _run(self, start: Any, count: int, sizes: Any = None) -> list[bool]:
        """Which items of a batch are done. What fails or is late is not."""
        if count == 0:
            return []
        try:
            batch: Batch = start()
            end = batch.wait()
        except StemmaError:
            return [False] * count
        assert end is not None
        done = end.results["status"] == _DONE
        if sizes is not None:
            done = done & (end.results["bytes"] == sizes)
        found: list[bool] = done.tolist()
        return found

    # ---- What HiCache calls ---------------------------------------------------------------------

    def get(
        self, key: str, target_location: Any = None, target_sizes: Any = None
    ) -> torch.Tensor | None:
        """Loads one page into a tensor; None if it is not there."""
        (page,) = self.batch_get([key], [target_location])
        return page

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        """Loads pages into tensors; None for each that is not there."""
        into = [one if one.is_contiguous() else one.contiguous() for one in target_locations]
        found = self._get(keys, into)
        pages: list[torch.Tensor | None] = []
        for there, page, target in zip(found, into, target_locations):
            if there and page is not target:
                target.copy_(page)
            pages.append(target if there else None)
        return pages

    def set(
        self,
        key: str,
        value: Any = None,
        target_location: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """Stores one page."""
        return self.batch_set([key], [value])

    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """Stores pages. False: not all of them were."""
        return all(self._put(keys, [one.contiguous() for one in values]))

    def exists(self, key: str) -> bool:
        """Whether a page is there."""
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """How many pages are there before the first that is not."""
        last = "" if self._parts == 1 else f"#{self._parts - 1}"  # Stored after the others.
        names = [short_key(key + last) for key in keys]
        try:
            if self._at_once:
                found = self._space.lookup(names) != 0
            else:
                end = self._space.contains(names).wait()
                assert end is not None
                found = end.results["status"] == _DONE
        except StemmaError:
            return 0
        return len(keys) if found.all() else int(found.argmin())

    # ---- The same without copies, with `interface_v1` -------------------------------------------

    def batch_get_v1(
        self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None
    ) -> list[bool]:
        """Loads pages into HiCache's host memory."""
        pieces = self._pieces(keys, host_indices)
        if pieces is not None:
            names, buffers = pieces
            return self._whole(self._get(names, buffers))
        pool, page_size = self.mem_pool_host, self.mem_pool_host.page_size
        pages = [pool.get_dummy_flat_data_page() for _ in keys]
        found = self._get(keys, pages)
        for i, there in enumerate(found):
            if there:
                pool.set_from_flat_data_page(int(host_indices[i * page_size]), pages[i])
        return found

    def batch_set_v1(
        self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None
    ) -> list[bool]:
        """Stores pages of HiCache's host memory."""
        pieces = self._pieces(keys, host_indices)
        if pieces is not None:
            names, buffers = pieces
            return self._whole(self._put(names, buffers))
        pool, page_size = self.mem_pool_host, self.mem_pool_host.page_size
        pages = [
            pool.get_data_page(int(host_indices[i * page_size]), flat=True).contiguous()
            for i in range(len(keys))
        ]
        return self._put(keys, pages)

    def _pieces(
        self, keys: Sequence[str], host_indices: torch.Tensor
    ) -> tuple[list[str], list[Any]] | None:
        """Names and places of the parts of each page; None where a page is stored whole."""
        if self._parts == 1:
            return None
        addresses, sizes = self.mem_pool_host.get_page_buffer_meta(host_indices)
        names = [f"{key}#{part}" for key in keys for part in range(self._parts)]
        return names, [_memory(address, size) for address, size in zip(addresses, sizes)]

    def _parts_of_a_page(self) -> int:
        """In how many parts a page is stored: K and V apart where they lie in two places that can
        be used without a copy, else 1. With `interface_v1` only; the older calls give whole
        pages."""
        pool = self.mem_pool_host
        if not self._v1 or getattr(pool, "layout", "") not in ("page_first", "page_first_direct"):
            return 1
        addresses, _ = pool.get_page_buffer_meta(torch.arange(pool.page_size))
        return 2 if len(addresses) == 2 else 1

    def _whole(self, parts: list[bool]) -> list[bool]:
        return [all(parts[i : i + self._parts]) for i in range(0, len(parts), self._parts)]

    def clear(self) -> None:
        """Removes everything of this name and layout."""
        try:
            self._space.forget(timeout_s=self._timeout_s)
        except StemmaError:
            pass

    def close(self) -> None:
        """Flushes and closes the store."""
        self._store.close()

    def get_stats(self) -> Any:
        """HiCache asks for metrics of its own kind; `stats` has ours."""
        return None

    def stats(self) -> dict[str, Any]:
        """Counters of the store and its levels."""
        return self._store.stats()


def _in_folder(level: Level, folder: str) -> Level:
    """A disk's directory is one process's: each rank has a folder in it."""
    if level.kind != "disk" or level.where is None:
        return level
    return dataclasses.replace(level, where=os.path.join(level.where, folder))


def _of_replica(given: object, dp_rank: int) -> str:
    """The end of a folder's name: all replicas of `--dp-size` have the same ranks, and the storage
    configuration does not say which one this is. The first one's is empty."""
    if given is not None:
        if not isinstance(given, int) or isinstance(given, bool) or given < 0:
            raise InvalidArgument(f"replica is {given!r}; it must be a whole number from 0")
        return f"-replica{given}" if given else ""
    if dp_rank != 0:  # With attention over data-parallel groups, the ranks tell them apart.
        return ""
    try:
        from sglang.srt.runtime_context import get_parallel

        replica = get_parallel().dp_rank
    except (ImportError, AttributeError, RuntimeError, ValueError):
        return ""  # An older SGLang, or no server.
    return f"-replica{replica}" if replica else ""


def _size(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return int(value.numel() * value.element_size())
    return int(value.nbytes)


def _memory(address: int, size: int) -> Any:
    """Memory of HiCache's pool, in place."""
    raw: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(raw, np.uint8)
