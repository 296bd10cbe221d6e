"""The leases of the requests of a continuous batch, for any version of transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stemma._cache import PagedCache
from stemma._errors import InvalidArgument, OutOfRoom
from stemma._lease import NO_BLOCK, Lease
from stemma._options import Group, LookupOptions
from stemma._scope import Scope

GONE = -1  # In a block table: the block fell out of the window.
_MOST_WAITING = 4096
_FIND = LookupOptions(allow_copy=False)  # Whole blocks only.
_NEW = LookupOptions(read=False)
_PRIVATE = LookupOptions(read=False, write=False)


@dataclass
class _Request:
    """A request's lease, and what is asked of it too often to ask the library."""

    lease: Lease
    room: int  # Positions that it has blocks for.
    committed: int
    length: int  # Tokens that the lease knows.


class BatchBooks:
    """Which blocks the requests of a batch have, and which prompts they hold.

    A request has a lease from its first batch until it is finished, cancelled or put back. What it
    computed becomes findable by whole blocks, after the forward that computed it. `tell` hears
    the block tables of a request, one for each group, whenever they have changed, and None when
    the request has ended.

    Threading: one thread at a time; counts() may be called by others.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        policy: str | None,
        sharing: bool,
        tell: Callable[[str, list[list[int]] | None], None],
    ) -> None:
        self.index = PagedCache(groups, policy=policy)
        self._groups = len(groups)
        self._page = groups[0].block_tokens
        self._sharing = sharing
        self._tell = tell
        self._scope = Scope("stemma.torch.continuous")
        self._requests: dict[str, _Request] = {}
        # Prompts that wait without a hit: they are looked up again for every batch.
        self._waiting: dict[str, NDArray[np.uint32]] = {}
        self._counts = {"requests": 0, "prompt_tokens": 0, "reused_tokens": 0}

    # ---- Requests -------------------------------------------------------------------------------

    def find(self, request_id: str, prompt: Sequence[int]) -> int:
        """Holds what is cached of a prompt, if anything is. Returns how many of its tokens need no
        computing; the last one always does."""
        if not self._sharing:
            return 0
        self.end(request_id)
        tokens = self._waiting.get(request_id)
        if tokens is None or len(tokens) != len(prompt):
            tokens = np.asarray(prompt, np.uint32)
        try:
            lease = self.index.lease(self._scope, tokens, draft_tokens=0, lookup=_FIND)
        except OutOfRoom:
            return 0
        found = lease.reused
        if not found:
            lease.release()
            if len(self._waiting) >= _MOST_WAITING:
                self._waiting.clear()
            self._waiting[request_id] = tokens
            return 0
        self._begin(request_id, lease, len(prompt), found)
        return found

    def grow(
        self, request_id: str, end: int, prompt: Sequence[int] = (), warm_up: bool = False
    ) -> bool:
        """Drafts blocks up to position `end`, evicting what is cached where that is needed. False:
        there is no room, and nothing has changed. `prompt` is for a request without a lease."""
        request = self._requests.get(request_id)
        if request is not None and request.room >= end:
            return True
        try:
            if request is None:
                request = self._open(request_id, end, prompt, warm_up)
            else:
                request.lease.reserve(end)
        except OutOfRoom:
            return False
        self._changed(request_id, request)
        return True

    def computed(self, request_id: str, depth: int, tokens: Callable[[], list[int]]) -> None:
        """A forward has computed a request up to `depth`: its whole blocks can be found now."""
        request = self._requests.get(request_id)
        if request is None or depth // self._page <= request.committed // self._page:
            return
        if depth > request.length:
            request.lease.extend(tokens()[request.length : depth])
            request.length = depth
        done = request.lease.commit(depth)
        request.committed = depth
        if done.duplicates:
            request.lease.adopt_canonical()
        self._changed(request_id, request)

    def has(self, request_id: str) -> bool:
        """Whether a request has a lease."""
        return request_id in self._requests

    def committed(self, request_id: str) -> int:
        """Up to where a request can be found; 0 if it has no lease."""
        request = self._requests.get(request_id)
        return 0 if request is None else request.committed

    def end(self, request_id: str) -> None:
        """Ends a request's lease, if it has one. What it computed stays cached until its room is
        needed."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            self._tell(request_id, None)
            request.lease.release()

    def end_all(self) -> None:
        """Ends all leases."""
        for request_id in list(self._requests):
            self.end(request_id)
        self._waiting.clear()

    def close(self) -> None:
        """Ends all leases and the index."""
        self.end_all()
        self.index.close()

    # ---- What there is --------------------------------------------------------------------------

    def available(self) -> list[int]:
        """How many blocks of each group a request could get now: free ones, and cached ones that
        can be evicted."""
        return [one.free_blocks + one.evictable_blocks for one in self.index.stats().groups]

    def counts(self) -> dict[str, int]:
        """Requests that began, the tokens of their prompts, and how many of these were reused."""
        return dict(self._counts)

    # ---- Ours -----------------------------------------------------------------------------------

    def _open(self, request_id: str, end: int, prompt: Sequence[int], warm_up: bool) -> _Request:
        """A lease for a request that reuses nothing. Raises OutOfRoom."""
        lookup = _NEW if self._sharing and not warm_up else _PRIVATE
        tokens = np.asarray(prompt, np.int64)
        lease = self.index.lease(self._scope, tokens, draft_tokens=0, lookup=lookup)
        try:
            lease.reserve(end)
        except BaseException:
            lease.abandon()
            raise
        return self._begin(request_id, lease, len(prompt), 0)

    def _begin(self, request_id: str, lease: Lease, tokens: int, found: int) -> _Request:
        request = _Request(lease, 0, found, tokens)
        self._requests[request_id] = request
        self._waiting.pop(request_id, None)
        self._counts["requests"] += 1
        self._counts["prompt_tokens"] += tokens
        self._counts["reused_tokens"] += found
        self._changed(request_id, request)
        return request

    def _changed(self, request_id: str, request: _Request) -> None:
        tables = []
        for group in range(self._groups):
            table = request.lease.block_table(group).astype(np.int64)
            table[table == NO_BLOCK] = GONE
            tables.append(table.tolist())
        request.room = request.lease.capacity
        self._tell(request_id, tables)


def rows_of(
    table: Sequence[int], page: int, stride: int, span: tuple[int, int], trash: int
) -> list[int]:
    """The row of the memory for each position of `span`; `trash` where there is no block. Blocks
    begin `stride` rows apart."""
    begin, end = span
    rows: list[int] = []
    for number in range(begin // page, -(-end // page)):
        first, last = max(begin, number * page), min(end, (number + 1) * page)
        if table[number] == GONE:
            rows.extend([trash] * (last - first))
        else:
            at = table[number] * stride - number * page
            rows.extend(range(at + first, at + last))
    return rows


def split(whole: int, weights: Sequence[float], what: str) -> list[int]:
    """`whole` divided in the ratio of `weights`, one or more for each."""
    if whole < len(weights):
        raise InvalidArgument(
            f"the cache has room for {whole} {what}, and the model needs {len(weights)}; give a "
            "larger num_blocks"
        )
    total, rest = sum(weights), whole
    counts: list[int] = []
    for n, weight in enumerate(weights):
        left = len(weights) - n - 1
        count = round(whole * weight / total) if left else rest
        counts.append(max(1, min(count, rest - left)))
        rest -= counts[-1]
    return counts


def weights_of(
    sizes: Sequence[int], windows: Sequence[int], window_share: float | None
) -> list[float]:
    """The parts of the memory that groups get: room for equally many tokens, or `window_share` for
    those with a window."""
    if window_share is None or len(sizes) == 1:
        return [float(size) for size in sizes]
    if not 0 < window_share < 1:
        raise InvalidArgument(f"window_share is {window_share}; give a part between 0 and 1")
    return [window_share if window else 1 - window_share for window in windows]
