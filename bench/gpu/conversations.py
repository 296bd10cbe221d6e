# Conversations of bench/gpu/exact: their questions, the comparison of two answers, and the counts.
import math
import random
import threading

from client import RequestFailed

LIKELIEST = 20  # Likeliest tokens requested with each token of an answer.


def tokens_of(answer):
    """[(token's text, its logarithm of likelihood, {text: logarithm} of the likeliest)] of a streamed answer."""
    found = []
    for piece in answer.logprobs:
        found += zip(piece["tokens"], piece["token_logprobs"], piece["top_logprobs"])
    return found


class Difference:
    """Where two answers part, and how close the two tokens were there."""

    def __init__(self, position, token, other, gap, spread):
        self.position = position
        self.token = token
        self.other = other
        self.gap = gap
        self.spread = spread

    @property
    def share(self):
        """The gap over the distance from the likeliest token to the twentieth. Infinite if it is unknown."""
        return math.inf if self.gap is None or self.spread <= 0 else self.gap / self.spread

    def __str__(self):
        gap = "unknown" if self.gap is None else f"{self.gap:.4g}"
        return (f"token {self.position}: {self.token!r} or {self.other!r}, "
                f"gap {gap} of {self.spread:.4g} ({self.share:.2g})")


def compare(answer, other):
    """The first difference of two answers, or None. The gap is the larger of those that the two answers give."""
    ours, theirs = tokens_of(answer), tokens_of(other)
    for position, ((token, _, top), (other_token, _, other_top)) in enumerate(zip(ours, theirs)):
        if token == other_token:
            continue
        gaps = [abs(likely[token] - likely[other_token]) if token in likely and other_token in likely else None
                for likely in (top, other_top)]
        spread = min(max(likely.values()) - min(likely.values()) for likely in (top, other_top))
        return Difference(position, token, other_token, None if None in gaps else max(gaps), spread)
    if len(ours) != len(theirs):
        return Difference(min(len(ours), len(theirs)), "", "", None, 0.0)
    return None


class Tally:
    """What was counted. Thread-safe."""

    def __init__(self, tie, say):
        self._lock = threading.Lock()
        self._tie = tie
        self._say = say
        self.conversations = self.turns = self.tokens = 0
        self.reused = self.prompt_tokens = 0
        self.shares = []  # Gaps of the turns that differ between cached and computed answers.
        self.control_shares = []  # Gaps of the turns that differ although both were computed.
        self.sources = {}
        self.failures = []

    @property
    def noise(self):
        """The largest gap that this machine bridges without any cache, and at least --tie."""
        return max([self._tie, *filter(math.isfinite, self.control_shares)])

    @property
    def differences(self):
        return sum(share > self.noise for share in self.shares)

    @property
    def good(self):
        return not self.differences and not self.failures and self.turns > 0

    def turn(self, number, cached, computed, control):
        """One turn that was asked three times: with the cache, and twice without."""
        difference = compare(cached, computed)
        unsteady = compare(computed, control)
        with self._lock:
            self.turns += 1
            self.tokens += len(tokens_of(cached)) if difference is None else difference.position
            self.reused += cached.reused
            self.prompt_tokens += cached.reused + cached.report["evaluated_tokens"]
            self.sources[cached.source] = self.sources.get(cached.source, 0) + 1
            if difference is not None:
                # An answer that reused nothing is computed like the two others.
                (self.shares if cached.reused else self.control_shares).append(difference.share)
                self._say(f"conversation {number}: {difference} ({cached.source}, {cached.reused} reused)")
            if unsteady is not None:
                self.control_shares.append(unsteady.share)
                self._say(f"conversation {number}: {unsteady} (computed twice)")

    def conversation(self):
        with self._lock:
            self.conversations += 1
            if self.conversations % 100 == 0:
                self._say(f"{self.conversations} conversations")

    def fail(self, error):
        with self._lock:
            self.failures.append(str(error))
            self._say(f"failed: {error}")

    def lines(self):
        share = self.reused / self.prompt_tokens if self.prompt_tokens else 0
        came = ", ".join(f"{count} {source}" for source, count in sorted(self.sources.items()))
        lines = [f"{self.conversations} conversations, {self.turns} turns, {self.tokens} equal tokens, "
                 f"{len(self.shares) - self.differences} ties, {self.differences} differences",
                 f"with and without the cache: {_gaps(self.shares)}",
                 f"computed twice, without the cache: {_gaps(self.control_shares)}",
                 f"a gap of up to {self.noise:.2g} of the spread is a tie",
                 f"{share:.0%} of the prompts' tokens were reused; turns by where most of the prompt came from: {came}"]
        return lines + [f"failed: {failure}" for failure in self.failures]


def _gaps(shares):
    """How many turns differ, and by how much."""
    if not shares:
        return "no turn differs"
    ordered = sorted(shares)
    return (f"{len(ordered)} turns differ, with gaps of {ordered[len(ordered) // 2]:.2g} (median) and "
            f"{ordered[-1]:.2g} (largest) of the spread")


class Talk:
    """One conversation: turns, the same question again, an edited question. Its number is its seed."""

    def __init__(self, client, given, systems, number, tally):
        self._client = client
        self._given = given
        self._random = random.Random(given.seed * 1_000_003 + number)
        self._systems = systems
        self._number = number
        self._tally = tally

    def hold(self):
        prompt = list(self._random.choice(self._systems))
        for _ in range(self._random.randint(2, 5)):
            before = prompt
            prompt = before + self._words(8, self._given.tokens // 8)
            if len(prompt) + self._given.answer > self._given.tokens:
                break
            self._turn(prompt)
            kind = self._random.random()
            if kind < 0.2:
                self._turn(prompt)
            elif kind < 0.4:
                # The last question changes from somewhere in its middle on.
                kept = self._random.randint(len(before), len(prompt) - 1)
                prompt = prompt[:kept] + self._words(4, 64)
                self._turn(prompt)
        self._tally.conversation()

    def _words(self, least, most):
        return self._random.choices(range(33, 127), k=self._random.randint(least, max(least, most)))

    def _turn(self, prompt):
        cached = self._ask(prompt)
        computed = self._ask(prompt, cache_prompt=False)
        control = self._ask(prompt, cache_prompt=False)
        if computed.reused or control.reused:
            raise RequestFailed("a prompt was reused although the request forbade it")
        self._tally.turn(self._number, cached, computed, control)

    def _ask(self, prompt, **more):
        return self._client.ask(prompt, self._given.answer, logprobs=LIKELIEST, **more)
