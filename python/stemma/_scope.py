"""Scopes: what must be equal before the tokens of two prompts are compared."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from stemma import _library, _structs
from stemma._errors import raise_last

_make = _library.load("stemma").quick.stemma_scope_make
_make.argtypes = [ctypes.POINTER(_structs.ScopeSpec), ctypes.POINTER(_structs.ScopeDigest)]
_make.restype = ctypes.c_int32


@dataclass(frozen=True)
class Adapter:
    """An adapter as it is loaded now. Its generation changes when other weights take its name."""

    name: str | bytes
    generation: int = 0
    scale: float = 1.0


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _bytes(value: str | bytes) -> _structs.Bytes:
    raw = _raw(value)
    return _structs.Bytes(raw, len(raw))


class Scope:
    """A digest of model, adapters, KV types and tenant. Equal scopes share what is cached; others
    share nothing. Immutable; make it once and keep it.

    `model` is a digest of the weights, never a path. `tenant_salt` keeps a tenant's cache to
    itself; give it 16 random bytes or more.
    """

    __slots__ = ("_address", "_pointer", "digest")

    def __init__(
        self,
        model: str | bytes,
        *,
        adapters: Sequence[Adapter] = (),
        kv_types: str | bytes = b"",
        layout: str | bytes = b"",
        rope_and_window: str | bytes = b"",
        tenant_salt: str | bytes = b"",
        caller_namespace: str | bytes = b"",
        state_format: int = 0,
    ) -> None:
        listed = (_structs.ScopeAdapter * len(adapters))(
            *(_structs.ScopeAdapter(_bytes(a.name), a.generation, a.scale) for a in adapters)
        )
        spec = _structs.ScopeSpec(
            state_format=state_format,
            model=_bytes(model),
            adapters=listed,
            adapter_count=len(adapters),
            kv_types=_bytes(kv_types),
            layout=_bytes(layout),
            rope_and_window=_bytes(rope_and_window),
            tenant_salt=_bytes(tenant_salt),
            caller_namespace=_bytes(caller_namespace),
        )
        out = _structs.ScopeDigest()
        status = _make(spec, out)
        if status:
            raise_last(status)
        self._set(bytes(out.digest))

    @classmethod
    def from_digest(cls, digest: bytes) -> Scope:
        """The scope with these 32 bytes, as `digest` gave them."""
        if len(digest) != 32:
            raise ValueError(f"a scope's digest has 32 bytes, not {len(digest)}")
        scope = cls.__new__(cls)
        scope._set(bytes(digest))
        return scope

    def _set(self, digest: bytes) -> None:
        self.digest = digest
        self._pointer = _structs.ScopeDigest.from_buffer_copy(digest)
        self._address = ctypes.addressof(self._pointer)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<stemma.Scope {self.digest.hex()[:16]}>"

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return (Scope.from_digest, (self.digest,))
