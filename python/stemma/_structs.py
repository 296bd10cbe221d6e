"""The structs of stemma.h, field by field. A test compares their sizes and places with the recorded
ABI."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)

TOKEN_LIMIT = 0x8000_0000
NO_BLOCK = 0xFFFF_FFFF
ALL = 0xFFFF_FFFF
NEVER = 0xFFFF_FFFF_FFFF_FFFF
MAX_GROUPS = 8


class Sized(Structure):
    """A struct that begins with its size, which is filled in here."""

    def __init__(self, **fields: object) -> None:
        super().__init__(**fields)
        self.struct_size = sizeof(type(self))


class Version(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("patch", c_uint32)]


class Bytes(Structure):
    _fields_ = [("data", c_char_p), ("size", c_size_t)]


class ScopeDigest(Structure):
    _fields_ = [("digest", c_uint8 * 32)]


class ScopeAdapter(Structure):
    _fields_ = [("name", Bytes), ("generation", c_uint64), ("scale", c_double)]


class ScopeSpec(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("state_format", c_uint32),
        ("model", Bytes),
        ("adapters", POINTER(ScopeAdapter)),
        ("adapter_count", c_size_t),
        ("kv_types", Bytes),
        ("layout", Bytes),
        ("rope_and_window", Bytes),
        ("tenant_salt", Bytes),
        ("caller_namespace", Bytes),
    ]


class MediaItem(Structure):
    _fields_ = [
        ("kind", c_uint32),
        ("offset", c_uint32),
        ("length", c_uint32),
        ("causal", c_uint32),
        ("digest", c_uint8 * 16),
    ]


class Prompt(Structure):
    _fields_ = [
        ("tokens", c_void_p),
        ("token_count", c_size_t),
        ("media", POINTER(MediaItem)),
        ("media_count", c_size_t),
    ]


class ContentKey(Structure):
    _fields_ = [("bytes", c_uint8 * 32)]


class BlockCopy(Structure):
    _fields_ = [
        ("group", c_uint32),
        ("source", c_uint32),
        ("target", c_uint32),
        ("tokens", c_uint32),
    ]


FenceFunction = CFUNCTYPE(c_int32, c_void_p)


class Fence(Structure):
    _fields_ = [("signalled", FenceFunction), ("user", c_void_p)]


class Clock(Structure):
    _fields_ = [("now_ns", c_void_p), ("user", c_void_p)]


class GroupOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("attention", c_uint32),
        ("block_tokens", c_uint32),
        ("capacity_blocks", c_uint32),
        ("window_tokens", c_uint32),
        ("sink_tokens", c_uint32),
        ("block_bytes", c_uint64),
    ]


class TenantQuota(Structure):
    _fields_ = [("tenant", c_uint32), ("reserved", c_uint32), ("bytes", c_uint64)]


class Options(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("enabled", c_uint32),
        ("groups", POINTER(GroupOptions)),
        ("group_count", c_size_t),
        ("budget_bytes", c_uint64),
        ("logits_bytes", c_uint64),
        ("pin_share", c_double),
        ("quotas", POINTER(TenantQuota)),
        ("quota_count", c_size_t),
        ("index_cells", c_uint32),
        ("content_keys", c_uint32),
        ("event_capacity", c_uint32),
        ("reserved", c_uint32),
        ("stats_window_ns", c_uint64),
        ("policy", c_char_p),
        ("block_io", c_void_p),
        ("clock", Clock),
        ("closed", c_void_p),
        ("closed_user", c_void_p),
    ]


class LookupOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("at_most", c_uint32),
        ("evaluate_at_least", c_uint32),
        ("read", c_uint32),
        ("write", c_uint32),
        ("allow_copy", c_uint32),
        ("want_logits", c_uint32),
        ("reserved", c_uint32),
    ]


class PriorityRange(Structure):
    _fields_ = [
        ("begin", c_uint32),
        ("end", c_uint32),
        ("priority", c_uint32),
        ("reserved", c_uint32),
        ("ttl_ns", c_uint64),
    ]


class Retain(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("priority", c_uint32),
        ("ttl_ns", c_uint64),
        ("ranges", POINTER(PriorityRange)),
        ("range_count", c_size_t),
        ("session", c_uint64),
        ("phase", c_uint32),
        ("finish", c_uint32),
        ("session_ttl_ns", c_uint64),
        ("will_return", c_uint32),
        ("reserved", c_uint32),
        ("expected_return_ns", c_uint64),
    ]


class LeaseOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("tenant", c_uint32),
        ("draft_tokens", c_uint32),
        ("fill_to", c_uint32),
        ("lookup", POINTER(LookupOptions)),
        ("retain", POINTER(Retain)),
    ]


class ReleaseOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("retain", POINTER(Retain)),
        ("fence", POINTER(Fence)),
    ]


class Report(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("prompt_tokens", c_uint32),
        ("matched_tokens", c_uint32),
        ("reused_tokens", c_uint32),
        ("copied_tokens", c_uint32),
        ("to_compute_tokens", c_uint32),
        ("checkpoint_would_help_at", c_uint32),
        ("limiting_group", c_uint32),
        ("outcome", c_uint32),
        ("reason", c_uint32),
    ]


class Positions(Structure):
    _fields_ = [
        ("reused", c_uint32),
        ("committed", c_uint32),
        ("length", c_uint32),
        ("capacity", c_uint32),
    ]


class Commit(Structure):
    _fields_ = [
        ("committed", c_uint32),
        ("published", c_uint32),
        ("duplicates", c_uint32),
        ("reserved", c_uint32),
    ]


class Pin(Structure):
    _fields_ = [("id", c_uint64), ("pinned_tokens", c_uint32), ("reserved", c_uint32)]


class Histogram(Structure):
    _fields_ = [("buckets", c_uint64 * 33)]


class Counts(Structure):
    _fields_ = [
        ("outcomes", c_uint64 * 8),
        ("reasons", c_uint64 * 16),
        ("lookups", c_uint64),
        ("queried_tokens", c_uint64),
        ("reused_tokens", c_uint64),
        ("copied_tokens", c_uint64),
        ("computed_tokens", c_uint64),
    ]


class GroupStats(Structure):
    _fields_ = [
        ("capacity_blocks", c_uint32),
        ("free_blocks", c_uint32),
        ("cached_blocks", c_uint32),
        ("draft_blocks", c_uint32),
        ("peak_used_blocks", c_uint32),
        ("reserved", c_uint32),
        ("block_bytes", c_uint64),
    ]


STATS_COUNTS = (
    "leases scopes evicted_blocks duplicate_blocks tails_published forks rewinds pin_expiries "
    "quota_refusals orphaned_blocks stale_walks hint_repairs markers_dropped exact_counts "
    "pinned_blocks logits_bytes checkpoints index_bytes event_bytes kv_bytes_used kv_bytes_capacity"
).split()


class Stats(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("group_count", c_uint32),
        ("total", Counts),
        ("window", Counts),
        ("window_ns", c_uint64),
        ("groups", GroupStats * MAX_GROUPS),
        *((name, c_uint64) for name in STATS_COUNTS),
        ("match_tokens", Histogram),
        ("eviction_age_us", Histogram),
        ("evictable_blocks", c_uint32 * MAX_GROUPS),
    ]


class Event(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_uint32),
        ("sequence", c_uint64),
        ("parent", ContentKey),
        ("keys", c_void_p),
        ("key_count", c_size_t),
        ("words", c_void_p),
        ("word_count", c_size_t),
        ("block_tokens", c_uint32),
        ("reserved", c_uint32),
        ("group", c_uint32),
        ("tail", c_uint32),
    ]


class CachedPath(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("tokens", c_uint32),
        ("scope", ScopeDigest),
        ("held", c_uint32),
        ("reserved", c_uint32),
    ]


class ReplayRow(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("hints", c_uint32),
        ("trace", c_char_p),
        ("policy", c_char_p),
        ("capacity_blocks", c_uint64),
        ("block_tokens", c_uint32),
        ("reserved", c_uint32),
        ("requests", c_uint64),
        ("block_refs", c_uint64),
        ("block_hits", c_uint64),
        ("hit_ratio", c_double),
        ("cost_weighted_hit_ratio", c_double),
        ("evictions", c_uint64),
        ("seconds", c_double),
    ]


EventFunction = CFUNCTYPE(None, c_void_p, POINTER(Event))
PathFunction = CFUNCTYPE(None, c_void_p, POINTER(CachedPath))
BytesFunction = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
ReplayFunction = CFUNCTYPE(None, c_void_p, POINTER(ReplayRow))
