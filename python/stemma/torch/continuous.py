"""Continuous batching of Hugging Face transformers with Stemma's index of blocks.

    with stemma.torch.continuous.attach(model, batching=config) as attached:
        model.generate_batch(prompts)  # As always; later calls find what earlier ones computed.

transformers shares prefixes of models with full attention only, and forgets everything that it
kept as soon as memory runs short. Here models with sliding windows share prefixes too, and the
retention policy evicts no more blocks than are needed.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import transformers

from stemma._errors import InvalidArgument, Unsupported, WrongState

if TYPE_CHECKING:
    from types import TracebackType

#: The versions of transformers whose continuous batching this module knows.
VERSIONS = ("5.17", "5.18", "5.19", "5.20", "5.21", "5.22", "5.23")


def _version() -> str:
    return ".".join(transformers.__version__.split(".")[:2])


def _check_version() -> None:
    if _version() not in VERSIONS:
        raise Unsupported(
            f"transformers {transformers.__version__} batches in a way that "
            f"stemma.torch.continuous does not know; install one of {', '.join(VERSIONS)}"
        )


_check_version()

from transformers.generation.continuous_batching import continuous_api as api  # noqa: E402

if TYPE_CHECKING or _version() != "5.17":
    from stemma.torch._batch_cache import BatchCache
else:
    from stemma.torch._batch_cache_517 import BatchCache

_KNOWN_LAYERS = frozenset(("full_attention", "sliding_attention"))


def _check_model(model: Any) -> None:
    """Raises Unsupported for a model that continuous batching cannot serve, with the reason."""
    name = type(model).__name__
    config = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise Unsupported(f"{name} has an encoder and a decoder; continuous batching has no place "
                          "for the encoder's states")  # fmt: skip
    if not hasattr(model, "generate_batch"):
        raise Unsupported(f"{name} has no continuous batching (generate_batch)")
    layers = getattr(config.get_text_config(), "layer_types", None) or ()
    other = sorted(set(layers) - _KNOWN_LAYERS)
    if other:
        raise Unsupported(
            f"{name} has layers of type {', '.join(other)}; continuous batching knows attention "
            "over everything or over a window. stemma.torch.attach() serves hybrid models"
        )


def _check_batching(batching: Any) -> None:
    if batching.cpu_offload_space != 0:
        raise InvalidArgument(
            f"cpu_offload_space is {batching.cpu_offload_space}; set it to 0. A request that is "
            "put back finds its blocks in the cache"
        )
    if _version() == "5.17" and not batching.allow_block_sharing:
        raise InvalidArgument("allow_block_sharing is off, so nothing could be reused; leave it on")
    page = batching.page_size if hasattr(batching, "page_size") else batching.block_size
    if page & (page - 1) or not 4 <= page <= 1024:
        raise InvalidArgument(f"a page has {page} tokens; give a power of two from 4 to 1024")


class Manager(api.ContinuousBatchingManager):  # type: ignore[misc]
    """transformers' manager, with a BatchCache that it keeps between calls, until end()."""

    def __init__(self, *, cache_options: dict[str, Any], **given: Any) -> None:
        super().__init__(**given)
        self._cache_options = cache_options
        if self.distributed_helper.tp_size > 1:
            raise Unsupported("tensor parallelism: each process would choose blocks of its own")

    def _create_batch_processor(self) -> Any:
        # transformers names the class of its cache in the body of this method and has no other
        # place to give one. So a copy of the method runs, in which that name means our cache. No
        # module is changed, and other managers keep theirs.
        method = api.ContinuousBatchingManager._create_batch_processor
        names = dict(method.__globals__, PagedAttentionCache=self._make_cache)
        return types.FunctionType(method.__code__, names, method.__name__)(self)

    def _make_cache(self, **given: Any) -> BatchCache:
        return BatchCache(**self._cache_options, **given)

    @property
    def cache(self) -> BatchCache | None:
        """The cache; None before the first request and after detach()."""
        return None if self.batch_processor is None else self.batch_processor.cache

    def stop(self, *args: Any, keep_for_next_session: bool = True, **options: Any) -> None:
        """Stops the thread. What is cached stays for the next call, whatever the caller asks."""
        if self._generation_thread is not None:
            super().stop(*args, keep_for_next_session=True, **options)

    def destroy(self) -> None:
        """generate_batch() calls this after each call: it only stops the thread."""
        self.stop()

    def end(self) -> None:
        """Stops the thread and gives the memory back."""
        self.stop()
        cache, self.batch_processor = self.cache, None
        if cache is not None:
            cache.books.close()
        super().destroy()


class Attached:
    """A model whose continuous batching uses Stemma's index. detach() takes it off again."""

    def __init__(self, model: Any, manager: Manager) -> None:
        self.model = model
        self.manager = manager
        model._cached_continuous_batching_manager = manager

    def counts(self) -> dict[str, int]:
        """Requests that began so far, the tokens of their prompts, and how many were reused."""
        cache = self.manager.cache
        return {"requests": 0, "prompt_tokens": 0, "reused_tokens": 0} if cache is None else (
            cache.books.counts()
        )

    def forget(self) -> None:
        """Forgets everything that is cached, as after a change of the weights. Raises Busy while
        requests run."""
        cache = self.manager.cache
        if cache is not None:
            cache.books.index.reset()

    def detach(self) -> None:
        """Gives the model its own continuous batching back, and frees the cache."""
        self.manager.end()
        if self.model.__dict__.get("_cached_continuous_batching_manager") is self.manager:
            del self.model._cached_continuous_batching_manager

    def __enter__(self) -> Attached:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.detach()


def attach(
    model: Any,
    *,
    generation: Any = None,
    batching: Any = None,
    hints: Any = None,
    policy: str | None = None,
    window_share: float | None = None,
) -> Attached:
    """Makes generate_batch() and continuous batching of `model` use Stemma's index of blocks.

    `generation`, `batching` and `hints` are transformers' GenerationConfig,
    ContinuousBatchingConfig and WorkloadHints, for all calls until detach(): transformers looks at
    them when it makes a manager, and calls that come later share this one. `policy` names the
    retention policy ("lru" if None). `window_share` is the part of the memory that layers with a
    sliding window get; None gives all layers room for equally many tokens. Raises Unsupported,
    InvalidArgument, WrongState.
    """
    _check_model(model)
    if getattr(model, "_cached_continuous_batching_manager", None) is not None:
        raise WrongState(
            "the model keeps a manager of continuous batching already; detach it, or call "
            "destroy_cached_continuous_batching_manager()"
        )
    batching = transformers.ContinuousBatchingConfig() if batching is None else batching
    _check_batching(batching)
    generation = model.generation_config if generation is None else generation
    if generation.eos_token_id is None:
        generation.eos_token_id = -1  # As transformers does: there is none.
    manager = Manager(
        model=model,
        generation_config=generation,
        continuous_batching_config=batching,
        workload_hints=hints,
        cache_options={"policy": policy, "window_share": window_share},
    )
    return Attached(model, manager)
