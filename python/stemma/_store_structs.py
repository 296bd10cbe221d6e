"""The structs of stemma_tiers.h and stemma_store.h that the package uses, and their functions."""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any

from stemma import _library
from stemma._calls import declare
from stemma._structs import Sized


class Level(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_uint32),
        ("write", c_uint32),
        ("promote", c_uint32),
        ("capacity_bytes", c_uint64),
        ("max_entry_bytes", c_uint64),
        ("where", c_char_p),
        ("latency_ns", c_uint64),
        ("bytes_per_second", c_uint64),
        ("seal_keys", c_char_p),
        ("scrub_bytes_per_second", c_uint64),
    ]


class StackOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("prefetch_entries", c_uint32),
        ("levels", POINTER(Level)),
        ("level_count", c_size_t),
        ("query_ns", c_uint64),
        ("load_ns", c_uint64),
        ("store_ns", c_uint64),
        ("queue_bytes", c_uint64),
        ("transfer_bytes", c_uint64),
    ]


class LevelStats(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("open", c_uint32),
        ("name", c_char * 16),
        *(
            (name, c_uint64)
            for name in (
                "entries used_bytes capacity_bytes hits hit_bytes misses too_slow stored promoted "
                "dropped lost puts put_bytes corrupt failed evictions"
            ).split()
        ),
        ("latency_ns", c_double),
        ("bytes_per_second", c_double),
        ("written_back", c_uint64),
    ]


class LevelPurged(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("complete", c_uint32),
        ("name", c_char * 16),
        ("entries", c_uint64),
        ("bytes", c_uint64),
        ("unsure", c_uint64),
        ("error", c_char * 128),
    ]


sizeof_purged = sizeof(LevelPurged)


class StoreOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("load_threads", c_uint32),
        ("store_threads", c_uint32),
        ("most_batches", c_uint32),
        ("most_items", c_uint32),
        ("reserved", c_uint32),
        ("put_bytes", c_uint64),
        ("timeout_ns", c_uint64),
    ]


class StoreLayout(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("layout", c_uint64),
        ("value_bytes", c_uint64),
    ]


class StoreRequest(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("op", c_uint32),
        ("name_space", c_uint32),
        ("count", c_uint32),
        ("keys", c_char_p),
        ("key_sizes", c_void_p),
        ("key_size", c_uint32),
        ("priority", c_uint32),
        ("values", c_void_p),
        ("value_sizes", c_void_p),
        ("value_size", c_uint64),
        ("priorities", c_void_p),
        ("depths", c_void_p),
        ("parents", c_char_p),
        ("parent_sizes", c_void_p),
        ("timeout_ns", c_uint64),
        ("user", c_uint64),
        ("results", c_void_p),
    ]


class StoreResult(Structure):
    _fields_ = [("status", c_uint32), ("levels", c_uint32), ("bytes", c_uint64)]


class StoreFinished(Structure):
    _fields_ = [
        ("batch", c_uint64),
        ("user", c_uint64),
        ("bytes", c_uint64),
        ("op", c_uint32),
        ("count", c_uint32),
        ("done", c_uint32),
        ("leading", c_uint32),
    ]


class Calls:
    """The functions of libstemma_tiers.so, which is loaded when the first store is made."""

    def __init__(self) -> None:
        library = _library.load("stemma_tiers")
        quick, waiting = library.quick, library.waiting
        u32, u64, size = POINTER(c_uint32), POINTER(c_uint64), POINTER(c_size_t)
        self.stack_create = declare(
            waiting.stemma_stack_create, POINTER(StackOptions), POINTER(c_void_p)
        )
        self.stack_destroy = declare(waiting.stemma_stack_destroy, c_void_p)
        self.stack_level_stats = declare(
            waiting.stemma_stack_level_stats, c_void_p, c_uint32, POINTER(LevelStats)
        )
        self.create = declare(
            waiting.stemma_store_create, c_void_p, POINTER(StoreOptions), POINTER(c_void_p)
        )
        self.destroy = declare(waiting.stemma_store_destroy, c_void_p, c_uint64)
        self.name_space = declare(
            waiting.stemma_store_namespace, c_void_p, c_char_p, POINTER(StoreLayout), u32
        )
        self.submit = declare(quick.stemma_store_submit, c_void_p, POINTER(StoreRequest), u64)
        self.event_fd = declare(quick.stemma_store_event_fd, c_void_p, POINTER(c_int32))
        self.drain = declare(
            quick.stemma_store_drain, c_void_p, POINTER(StoreFinished), c_size_t, size
        )
        self.wait = declare(
            waiting.stemma_store_wait, c_void_p, c_uint64, c_uint64, u32, POINTER(StoreFinished)
        )
        self.cancel = declare(
            waiting.stemma_store_cancel, c_void_p, c_uint64, POINTER(StoreFinished)
        )
        self.lookup = declare(
            quick.stemma_store_lookup,
            c_void_p,
            c_uint32,
            c_char_p,
            c_void_p,
            c_uint32,
            c_uint32,
            c_void_p,
            u32,
        )
        self.forget = declare(
            waiting.stemma_store_forget,
            c_void_p,
            c_uint32,
            c_uint32,
            c_uint64,
            POINTER(LevelPurged),
            c_size_t,
            u32,
        )
        self.flush = declare(waiting.stemma_store_flush, c_void_p, c_uint64, u32)
        self.stats_json = declare(
            waiting.stemma_store_stats_json, c_void_p, c_void_p, c_size_t, size
        )


_calls: Any = None


def calls() -> Calls:
    """The functions, loaded once."""
    global _calls
    if _calls is None:
        _calls = Calls()
    found: Calls = _calls
    return found
