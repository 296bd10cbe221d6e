"""attach(): generate() of a transformers model reuses what the pool has of a prompt."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import cache_utils as hf

from stemma._errors import InvalidArgument, OutOfRoom, Unsupported, WrongState
from stemma._scope import Scope
from stemma._store import Level
from stemma.torch._cache import RequestCache
from stemma.torch._pool import Pool
from stemma.torch._shapes import ModelShape, probe
from stemma.torch._weights import digest_of, state_of

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("stemma.torch")

MOST_SCOPES = 16  # Of one model, with other weights or adapters, whose digests are kept.
# What generate() itself adds to a model's arguments, or what changes no keys and values.
_HARMLESS = frozenset(
    "attention_mask position_ids past_key_values use_cache logits_to_keep output_attentions "
    "output_hidden_states output_router_logits return_dict".split()
)


class _Pass(Exception):
    """This call cannot be served with the pool; nothing was computed yet."""


class Attached:
    """A model whose generate() uses a pool. detach() takes it off again.

    A call that cannot reuse anything runs as if nothing were attached: `passed` says why, and how
    often.
    """

    def __init__(self, model: Any, pool: Pool, scope_options: dict[str, Any]) -> None:
        self.model = model
        self.pool = pool
        self.passed: dict[str, int] = {}
        self.last: RequestCache | None = None  #: The cache of the last call, for its numbers.
        self._scope_options = scope_options
        self._scopes: dict[tuple[Any, ...], Scope] = {state_of(model): pool.scope}
        self._lock = threading.Lock()
        self._original = model.generate
        self._signature = inspect.signature(self._original)
        self._installed = self._generate  # One object, so that detach() recognises it.
        model.generate = self._installed

    # ---- Its end --------------------------------------------------------------------------------

    def detach(self, *, close: bool = True) -> None:
        """Gives the model its own generate() back, and closes the pool unless `close` is false."""
        if self.model.__dict__.get("generate") is self._installed:
            del self.model.__dict__["generate"]
        if close:
            self.pool.close()

    def __enter__(self) -> Attached:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.detach()

    # ---- A call ---------------------------------------------------------------------------------

    def scope(self) -> Scope:
        """The scope of the model as it is now. Weights that were replaced or trained, and another
        adapter, make another one; reading all weights then takes a moment."""
        state = state_of(self.model)
        with self._lock:
            known = self._scopes.get(state)
            if known is None:
                known = make_scope(self.model, self.pool.shape, **self._scope_options)
                while len(self._scopes) >= MOST_SCOPES:
                    del self._scopes[next(iter(self._scopes))]
                self._scopes[state] = known
        return known

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError:
            return self._original(*args, **kwargs)  # It knows best what is wrong.
        named = {**bound.get("kwargs", {}), **{k: v for k, v in bound.items() if k != "kwargs"}}
        try:
            self._look_at(named)
            if named.get("generation_config") is not None:
                self._refuse_chunks(named["generation_config"])
            decode = self._decoder(named)
            return self._original(*args, **{**kwargs, "custom_generate": decode})
        except _Pass as reason:
            self._count(str(reason))
            return self._original(*args, **kwargs)

    def _count(self, reason: str) -> None:
        with self._lock:
            first = reason not in self.passed
            self.passed[reason] = self.passed.get(reason, 0) + 1
        if first:
            log.warning("generate() runs without the pool: %s", reason)

    def _look_at(self, named: dict[str, Any]) -> None:
        for name in ("custom_generate", "assistant_model", "past_key_values", "position_ids",
                     "inputs_embeds", "cache_implementation"):  # fmt: skip
            if named.get(name) is not None:
                raise _Pass(f"the call has {name}")
        if named.get("use_cache") is False:
            raise _Pass("the call has use_cache=False")
        if self.model.training:
            raise _Pass("the model is in training mode; call model.eval()")

    @staticmethod
    def _refuse_chunks(config: Any) -> None:
        if getattr(config, "prefill_chunk_size", None) is not None:
            raise InvalidArgument(
                "prefill_chunk_size does not go together with a pool: it counts from the beginning "
                "of the prompt, not from what was found. Leave it out, or detach() first"
            )

    def _decoder(self, named: dict[str, Any]) -> Any:
        """What generate() calls once it has prepared everything. The names are those of its own
        methods."""
        attached = self
        streamer, synced = named.get("streamer"), named.get("synced_gpus")

        def decode(
            self: Any,
            input_ids: Any,
            logits_processor: Any,
            stopping_criteria: Any,
            generation_config: Any,
            tokenizer: Any = None,
            assistant_tokenizer: Any = None,
            **model_kwargs: Any,
        ) -> Any:
            mode = generation_config.get_generation_mode(None)
            name = transformers.generation.utils.GENERATION_MODES_MAPPING[mode]
            if "/" in name:
                raise _Pass(f"generation mode {mode.value} comes from the hub")
            extra = self._extract_generation_mode_kwargs(None, {}, synced, None, streamer)
            self._validate_generation_mode(mode, generation_config, extra)
            run = getattr(type(self), name)
            given = {
                "logits_processor": logits_processor,
                "stopping_criteria": stopping_criteria,
                "generation_config": generation_config,
                **extra,
            }
            attached._refuse_chunks(generation_config)
            try:
                cache = attached._cache_of(input_ids, generation_config, model_kwargs)
            except _Pass as reason:
                attached._count(str(reason))
                return run(self, input_ids, **given, **model_kwargs)
            return attached._run(run, cache, input_ids, given, model_kwargs)

        return decode

    def _cache_of(self, ids: Any, config: Any, model_kwargs: dict[str, Any]) -> RequestCache:
        made = model_kwargs.get("past_key_values")
        if made is None or type(made) is not hf.DynamicCache or made.offloading:
            kind = config.cache_implementation or type(made).__name__
            raise _Pass(f"the configuration asks for another cache ({kind})")
        others = sorted(
            name
            for name, value in model_kwargs.items()
            if value is not None and name not in _HARMLESS
        )
        if others:
            raise _Pass(f"keys and values also depend on {', '.join(others)}")
        mask = model_kwargs.get("attention_mask")
        try:
            return RequestCache(self.pool, ids, mask, config.max_length, self.scope())
        except (InvalidArgument, OutOfRoom) as error:
            raise _Pass(str(error)) from error

    def _run(
        self,
        run: Any,
        cache: RequestCache,
        ids: Any,
        given: dict[str, Any],
        model_kwargs: dict[str, Any],
    ) -> Any:
        self.last = cache
        model_kwargs["past_key_values"] = cache
        columns = ids.shape[1]
        try:
            for stop in cache.stops():
                self._prefill(cache, ids, stop, model_kwargs)
                cache.checkpoint()
            out = run(self.model, ids, **given, **model_kwargs)
            sequences = out if isinstance(out, torch.Tensor) else out.sequences
            if not cache.shuffled:
                cache.finish(sequences, lengths_of(sequences, columns, given["generation_config"]))
            return out
        finally:
            cache.close()

    def _prefill(
        self, cache: RequestCache, ids: Any, stop: int, model_kwargs: dict[str, Any]
    ) -> None:
        """Computes the prompt up to column `stop`."""
        at = cache.get_seq_length()
        now = dict(model_kwargs)
        if now.get("position_ids") is not None:
            now["position_ids"] = now["position_ids"][..., at:stop]
        if now.get("attention_mask") is not None:
            now["attention_mask"] = now["attention_mask"][:, :stop]
        inputs = self.model.prepare_inputs_for_generation(
            ids[:, at:stop], is_first_iteration=at == cache.depth, **now
        )
        self.model(**inputs, return_dict=True)


def lengths_of(sequences: Any, columns: int, config: Any) -> list[int]:
    """Where each row of an answer ends: behind its first end token, or before trailing padding."""
    answers = sequences[:, columns:].to("cpu")
    total = int(sequences.shape[1])
    ends = getattr(config, "_eos_token_tensor", None)
    if ends is None or answers.shape[1] == 0:
        return [total] * sequences.shape[0]
    over = torch.isin(answers, ends.to("cpu"))
    pad = getattr(config, "_pad_token_tensor", None)
    if pad is not None:
        inside = torch.arange(answers.shape[1]) * (answers != pad.to("cpu"))
        over[:, :-1] |= torch.arange(answers.shape[1] - 1) >= inside.max(dim=1).values[:, None]
    first = torch.where(over.any(dim=1), over.int().argmax(dim=1) + 1, total - columns)
    return [columns + int(n) for n in first]


def make_scope(
    model: Any,
    shape: ModelShape,
    *,
    model_id: str | bytes | None = None,
    tenant_salt: str | bytes = b"",
    namespace: str | bytes = b"",
) -> Scope:
    """The scope of a model: what must be equal before anything is shared. Without a `model_id` all
    weights are read for a digest."""
    return Scope(
        digest_of(model) if model_id is None else model_id,
        kv_types=str(shape.dtype),
        layout="stemma.torch 1",
        tenant_salt=tenant_salt,
        caller_namespace=namespace,
    )


def attach(
    model: Any,
    *,
    tokens: int,
    block_tokens: int = 16,
    saved_states: int = 64,
    model_id: str | bytes | None = None,
    tenant_salt: str | bytes = b"",
    namespace: str | bytes = b"",
    levels: Sequence[Level] = (),
    memory: Sequence[Any] | None = None,
    policy: str | None = None,
    copy_threads: int = 0,
    transfer_bytes: int = 64 << 20,
    queue_bytes: int = 1 << 30,
    query_s: float = 0.05,
    load_s: float = 5.0,
) -> Attached:
    """Makes `model.generate()` reuse every prefix that it has computed, within memory for `tokens`
    tokens.

    `model_id` names the weights, if you have a digest of them; otherwise all weights are read
    once, and again when they change. `tenant_salt` keeps what is cached to one tenant. `levels`
    are what lies under the pool: host memory, a directory that other processes find again. The
    rest is as for Pool.

    Raises Unsupported, with the reason, for models whose cache cannot be reused (encoder-decoders,
    models of running states alone), InvalidArgument, OutOfMemory.
    """
    if not hasattr(model, "generate") or not hasattr(model, "config"):
        name = type(model).__name__
        raise InvalidArgument(f"{name} has no generate(); give a transformers model")
    if isinstance(getattr(model.__dict__.get("generate"), "__self__", None), Attached):
        raise WrongState("a pool is attached to this model already; detach() it first")
    for needed in ("_extract_generation_mode_kwargs", "_validate_generation_mode"):
        if not hasattr(model, needed):
            raise Unsupported(
                f"transformers {transformers.__version__} is too old or too new for attach(); use "
                "cache_for() and finish()"
            )
    options: dict[str, Any] = {
        "model_id": model_id,
        "tenant_salt": tenant_salt,
        "namespace": namespace,
    }
    shape = probe(model)
    pool = Pool(
        shape,
        scope=make_scope(model, shape, **options),
        tokens=tokens,
        block_tokens=block_tokens,
        saved_states=saved_states,
        levels=levels,
        memory=memory,
        policy=policy,
        copy_threads=copy_threads,
        transfer_bytes=transfer_bytes,
        queue_bytes=queue_bytes,
        query_s=query_s,
        load_s=load_s,
    )
    return Attached(model, pool, options)
