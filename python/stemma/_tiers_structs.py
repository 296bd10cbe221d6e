"""The structs that put tiers under a cache, and their functions."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from stemma import _library, _structs
from stemma import _store_structs as store
from stemma._calls import declare
from stemma._structs import Sized

MOST_LEVELS = 8


class BlockIo(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("user", c_void_p),
        ("copy", c_void_p),
        ("read", c_void_p),
        ("write", c_void_p),
    ]


class PagedTiersOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("keep_words", c_uint32),
        ("groups", POINTER(_structs.GroupOptions)),
        ("group_count", c_size_t),
        ("layout", c_uint64),
        ("io", POINTER(BlockIo)),
    ]


class Restored(Structure):
    _fields_ = [
        ("cached_tokens", c_uint32),
        ("stored_tokens", c_uint32),
        ("restored_tokens", c_uint32),
        ("shared", c_uint32),
        ("level_tokens", c_uint32 * MOST_LEVELS),
        ("hold", c_uint64),
    ]


class Calls:
    """The functions of libstemma_tiers.so for a PagedCache."""

    def __init__(self) -> None:
        waiting = _library.load("stemma_tiers").waiting
        scope, prompt = POINTER(_structs.ScopeDigest), POINTER(_structs.Prompt)
        u32 = POINTER(c_uint32)
        self.create = declare(
            waiting.stemma_paged_tiers_create,
            c_void_p,
            POINTER(PagedTiersOptions),
            POINTER(c_void_p),
        )
        self.destroy = declare(waiting.stemma_paged_tiers_destroy, c_void_p)
        self.restore = declare(
            waiting.stemma_paged_tiers_restore,
            c_void_p,
            c_void_p,
            scope,
            prompt,
            POINTER(_structs.LeaseOptions),
            POINTER(Restored),
        )
        self.prefetch = declare(
            waiting.stemma_paged_tiers_prefetch, c_void_p, c_void_p, scope, prompt
        )
        self.store = declare(
            waiting.stemma_paged_tiers_store,
            c_void_p,
            scope,
            prompt,
            c_uint64,
            c_uint32,
            c_uint32,
            u32,
        )
        self.make_room = declare(
            waiting.stemma_paged_tiers_make_room, c_void_p, c_void_p, c_uint32, u32
        )
        self.forget = declare(
            waiting.stemma_paged_tiers_forget,
            c_void_p,
            scope,
            prompt,
            c_uint64,
            c_void_p,
            c_void_p,
            POINTER(store.LevelPurged),
            c_size_t,
            u32,
        )
        self.flush = declare(waiting.stemma_stack_flush, c_void_p, c_uint64, u32)
        self.prefilled = declare(waiting.stemma_stack_prefilled, c_void_p, c_uint32, c_uint64)


_calls: Any = None


def calls() -> Calls:
    """The functions, loaded once."""
    global _calls
    if _calls is None:
        _calls = Calls()
    found: Calls = _calls
    return found
