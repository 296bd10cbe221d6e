"""The functions of libstemma.so that the package calls, with their types."""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from stemma import _library
from stemma import _structs as s

library = _library.load("stemma")

_SCOPE, _PROMPT = POINTER(s.ScopeDigest), POINTER(s.Prompt)
_U32, _U64, _SIZE = POINTER(c_uint32), POINTER(c_uint64), POINTER(c_size_t)


def declare(function: Any, *argtypes: Any) -> Any:
    """`function` of a library, which returns a status."""
    function.argtypes = list(argtypes)
    function.restype = c_int32
    return function


_q, _w = library.quick, library.waiting

version = _q.stemma_version
version.argtypes, version.restype = [], s.Version
has_feature = declare(_q.stemma_has_feature, c_char_p)

cache_create = declare(_w.stemma_cache_create, POINTER(s.Options), POINTER(c_void_p))
cache_destroy = declare(_q.stemma_cache_destroy, c_void_p, c_uint32)
cache_lookup = declare(
    _q.stemma_cache_lookup, c_void_p, _SCOPE, _PROMPT, POINTER(s.LookupOptions), POINTER(s.Report)
)
cache_lease = declare(
    _q.stemma_cache_lease, c_void_p, _SCOPE, _PROMPT, POINTER(s.LeaseOptions), _U64
)
cache_lease_table = declare(
    _q.stemma_cache_lease_table,
    c_void_p,
    c_void_p,
    c_void_p,
    c_size_t,
    c_uint32,
    c_void_p,
    c_size_t,
    c_uint32,
    _U32,
    _U64,
)
cache_pin = declare(_q.stemma_cache_pin, c_void_p, _SCOPE, _PROMPT, c_uint64, POINTER(s.Pin))
cache_unpin = declare(_q.stemma_cache_unpin, c_void_p, c_uint64)
cache_end_session = declare(_q.stemma_cache_end_session, c_void_p, c_uint64)
cache_set_quota = declare(_q.stemma_cache_set_quota, c_void_p, c_uint32, c_uint64)
cache_tenant_bytes = declare(_q.stemma_cache_tenant_bytes, c_void_p, c_uint32, _U64)
cache_tenant_of = declare(_q.stemma_cache_tenant_of, c_void_p, _SCOPE, _U32, _U32)
cache_truncate = declare(_w.stemma_cache_truncate, c_void_p, _SCOPE, _PROMPT, c_uint32, _U32)
cache_drop_scope = declare(_w.stemma_cache_drop_scope, c_void_p, _SCOPE, _U32)
cache_reset = declare(_w.stemma_cache_reset, c_void_p, c_uint32)
cache_evict = declare(_w.stemma_cache_evict, c_void_p, c_uint32, _U32)
cache_stats = declare(_w.stemma_cache_stats, c_void_p, POINTER(s.Stats))
cache_branch_points = declare(
    _q.stemma_cache_branch_points, c_void_p, _SCOPE, _PROMPT, c_void_p, c_size_t, _SIZE
)
cache_contents = declare(_w.stemma_cache_contents, c_void_p, s.PathFunction, c_void_p)
cache_events = declare(
    _w.stemma_cache_events, c_void_p, c_uint64, c_uint32, s.EventFunction, c_void_p, _U64
)
cache_event_dump = declare(_w.stemma_cache_event_dump, c_void_p, s.EventFunction, c_void_p, _U64)
cache_poll = declare(_w.stemma_cache_poll, c_void_p, _U32)
cache_dump = declare(_w.stemma_cache_dump, c_void_p, s.BytesFunction, c_void_p)
cache_load = declare(_w.stemma_cache_load, c_void_p, c_char_p, c_size_t)
cache_check_invariants = declare(_w.stemma_cache_check_invariants, c_void_p)

lease_positions = declare(_q.stemma_lease_positions, c_uint64, POINTER(s.Positions))
lease_report = declare(_q.stemma_lease_report, c_uint64, POINTER(s.Report))
lease_copies = declare(_q.stemma_lease_copies, c_uint64, POINTER(s.BlockCopy), c_size_t, _SIZE)
lease_copies_done = declare(_q.stemma_lease_copies_done, c_uint64)
lease_copies_failed = declare(_q.stemma_lease_copies_failed, c_uint64)
lease_shrink_to = declare(_q.stemma_lease_shrink_to, c_uint64, c_uint32, _U32)
lease_media_to_process = declare(
    _q.stemma_lease_media_to_process, c_uint64, c_void_p, c_size_t, _SIZE
)
lease_logits = declare(_q.stemma_lease_logits, c_uint64, POINTER(c_void_p), _SIZE)
lease_extend = declare(_q.stemma_lease_extend, c_uint64, c_void_p, c_size_t)
lease_reserve = declare(_q.stemma_lease_reserve, c_uint64, c_uint32)
lease_commit = declare(_q.stemma_lease_commit, c_uint64, c_uint32, POINTER(s.Commit))
lease_adopt_canonical = declare(_q.stemma_lease_adopt_canonical, c_uint64, _U32)
lease_fork = declare(_q.stemma_lease_fork, c_uint64, _U64)
lease_rewind = declare(_q.stemma_lease_rewind, c_uint64, c_uint32)
lease_draft_checkpoint = declare(_q.stemma_lease_draft_checkpoint, c_uint64, c_uint32, _U32)
lease_commit_checkpoint = declare(
    _q.stemma_lease_commit_checkpoint, c_uint64, c_uint32, c_uint32
)
lease_hold_checkpoint = declare(
    _q.stemma_lease_hold_checkpoint, c_uint64, c_uint32, c_uint32, _U32, _U32
)
lease_attach_logits = declare(
    _w.stemma_lease_attach_logits, c_uint64, c_uint32, c_void_p, c_size_t
)
lease_release = declare(_q.stemma_lease_release, c_uint64, POINTER(s.ReleaseOptions))
lease_abandon = declare(_q.stemma_lease_abandon, c_uint64, POINTER(s.Fence))
lease_block_count = declare(_q.stemma_lease_block_count, c_uint64, c_uint32, _U32)
lease_block_table = declare(
    _q.stemma_lease_block_table, c_uint64, c_uint32, c_void_p, c_size_t, c_uint32, _U32
)
lease_draft_table = declare(
    _q.stemma_lease_draft_table, c_uint64, c_uint32, c_void_p, c_size_t, c_uint32, _U32
)
lease_slot_mapping = declare(
    _q.stemma_lease_slot_mapping, c_uint64, c_uint32, c_uint32, c_void_p, c_size_t, c_int64
)

