# Sixteen clients at once, with conversations of various lengths: how long requests wait for
# captures.
import random
import threading
import time

from client import RequestFailed
from metrics import difference, percentile, quantile

WAIT = "stemma_capture_wait_seconds"


class MixedResult:
    """What the server and its clients saw. Times are in ms; None where the server does not say."""

    def __init__(self):
        self.requests = 0
        self.failed = []
        self.first_ms = []
        self.gap_ms = []
        self.wait_p50_ms = None
        self.wait_p99_ms = None
        self.reused = None


class _Talker(threading.Thread):
    """One client: conversations that grow turn by turn, half of them with a system prompt that others have too."""

    def __init__(self, server, number, systems, longest, deadline):
        super().__init__(daemon=True)
        self._client = server.client()
        self._random = random.Random(1000 + number)
        self._systems = systems
        self._longest = longest
        self._deadline = deadline
        self.answers = []
        self.failed = None

    def run(self):
        try:
            # Each client asks at least once, however slow the machine is.
            self._converse()
            while time.monotonic() < self._deadline:
                self._converse()
        except RequestFailed as error:
            self.failed = error

    def stop(self):
        self._client.cut()

    def _tokens(self, count):
        return self._random.choices(range(33, 127), k=count)

    def _converse(self):
        prompt = list(self._random.choice(self._systems)) if self._random.random() < 0.5 else []
        # Lengths are uniform on a logarithmic scale.
        prompt += self._tokens(int(64 * (self._longest / 2 / 64) ** self._random.random()))
        for turn in range(self._random.randint(1, 5)):
            if turn > 0 and (len(prompt) + 128 > self._longest or time.monotonic() > self._deadline):
                return
            answer = self._client.ask(prompt, self._random.randint(8, 64))
            self.answers.append(answer)
            prompt = prompt + self._tokens(self._random.randint(16, 256))


def measure(server, prompts, streams, seconds, longest):
    """Talks for some seconds; every request that has begun by then is answered."""
    systems = [prompts.fresh(longest // 8) for _ in range(3)]
    server.ask(systems[0])
    before = server.metrics()
    deadline = time.monotonic() + seconds
    talkers = [_Talker(server, i, systems, longest, deadline) for i in range(streams)]
    try:
        for talker in talkers:
            talker.start()
        for talker in talkers:
            talker.join()
    except BaseException:
        for talker in talkers:
            talker.stop()
        raise
    after = server.metrics()
    result = MixedResult()
    for talker in talkers:
        if talker.failed:
            result.failed.append(talker.failed)
        for answer in talker.answers:
            result.requests += 1
            result.first_ms.append(answer.first_ms)
            result.gap_ms += [(b - a) * 1e3 for a, b in zip(answer.times, answer.times[1:])]
    for q, name in ((0.5, "wait_p50_ms"), (0.99, "wait_p99_ms")):
        wait = quantile(before, after, WAIT, q)
        setattr(result, name, None if wait is None else wait * 1e3)
    asked = difference(before, after, "stemma_prompt_tokens_total")
    reused = difference(before, after, "stemma_reused_tokens_total")
    result.reused = reused / asked if asked else None
    return result


def describe(result):
    """A few lines for the results."""
    if not result.requests:
        return ["mixed streams: no request was answered"]

    def ms(value):
        return "not told" if value is None else f"{value:.1f} ms"

    return [
        f"mixed streams: {result.requests} requests, {len(result.failed)} clients failed, "
        f"{0 if result.reused is None else result.reused:.0%} of the prompts' tokens reused",
        f"  first token: p50 {percentile(result.first_ms, 0.5):.1f} ms, p99 {percentile(result.first_ms, 0.99):.1f} ms",
        f"  between two tokens: p50 {ms(percentile(result.gap_ms, 0.5))}, p99 {ms(percentile(result.gap_ms, 0.99))}",
        f"  waiting for captures: p50 {ms(result.wait_p50_ms)}, p99 {ms(result.wait_p99_ms)} ({WAIT})",
    ]
