"""Reuse of KV in Hugging Face transformers: generate() recomputes no prefix that it has.

    attached = stemma.torch.attach(model, tokens=65536)
    model.generate(...)  # As always.
    attached.detach()

Needs torch and transformers 5; nothing else of the package imports this module.
"""

from __future__ import annotations

from stemma.torch._attach import Attached, attach, make_scope
from stemma.torch._cache import RequestCache
from stemma.torch._pool import Pool
from stemma.torch._shapes import GroupShape, LayerShape, ModelShape, Piece, probe
from stemma.torch._weights import digest_of

__all__ = [
    "Attached",
    "GroupShape",
    "LayerShape",
    "ModelShape",
    "Piece",
    "Pool",
    "RequestCache",
    "attach",
    "digest_of",
    "make_scope",
    "probe",
]
