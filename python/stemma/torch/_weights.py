"""A digest of a model's weights, so that KV of other weights is never found."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

_CHUNK = 1 << 24  # Numbers that are summed at a time; they and their factors take 256 MiB.


def _sums(tensor: Any) -> tuple[int, int]:
    """Two sums of a tensor's bytes that depend on every byte and its place, modulo 2^64."""
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    whole = raw.numel() // 8
    first = second = 0
    if whole:
        numbers = raw[: whole * 8].view(torch.int64) if raw.data_ptr() % 8 == 0 else (
            raw[: whole * 8].clone().view(torch.int64)
        )
        for at in range(0, whole, _CHUNK):
            part = numbers[at : at + _CHUNK]
            place = torch.arange(at + 1, at + 1 + part.numel(), device=part.device)
            # Odd factors, so that a change of one number always changes the sum.
            factor = place * -7046029254386353131 | 1
            mixed = (part ^ (part >> 29)) * factor
            first += int(mixed.sum())
            second += int(((mixed >> 32) * factor + part).sum())
    for byte in raw[whole * 8 :].tolist():
        first = first * 257 + byte + 1
    return first & (2**64 - 1), second & (2**64 - 1)


def tensors_of(model: Any) -> list[tuple[str, Any]]:
    """Parameters and buffers, in a fixed order."""
    named = list(model.named_parameters()) + list(model.named_buffers())
    return sorted(named, key=lambda one: str(one[0]))


def state_of(model: Any) -> tuple[Any, ...]:
    """Changes when a weight is replaced or written, or an adapter is switched. Cheap: no byte is
    read."""
    seen: list[Any] = []
    for name, tensor in tensors_of(model):
        version = 0 if tensor.is_inference() else tensor._version
        seen.append((name, tensor.data_ptr(), version))
    for name, module in model.named_modules():
        active = getattr(module, "active_adapters", None)
        if active is not None and not callable(active):
            off = bool(getattr(module, "disable_adapters", False))
            scaling = getattr(module, "scaling", None)
            merged = getattr(module, "merged", False)
            seen.append((name, str(active), off, str(scaling), bool(merged)))
    return tuple(seen)


def digest_of(model: Any) -> bytes:
    """A digest of weights, adapters and everything in the configuration that changes keys and
    values.

    Reads every weight once, on its own device. It tells accidental differences apart; it is no
    proof against somebody who makes weights to deceive it.
    """
    made = hashlib.sha256()
    config = model.config.to_dict()
    for name in ("_name_or_path", "transformers_version", "torch_dtype", "dtype"):
        config.pop(name, None)
    made.update(json.dumps(config, sort_keys=True, default=str).encode())
    made.update(str(getattr(model.config, "_attn_implementation", None)).encode())
    with torch.no_grad():
        for name, tensor in tensors_of(model):
            made.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {_sums(tensor)}".encode())
    for part in state_of(model):
        if len(part) == 5:  # An adapter: how it is applied.
            made.update(repr(part).encode())
    return made.digest()
