# The rows that one server runs at one length, and how each is measured.
#
# measure() does them in an order in which one row's prompts are the next row's neighbours, because
# computing a long prompt is what takes the time.
import statistics
import threading
from dataclasses import dataclass, field

from metrics import speed

# {key: its name in the table}, in the order of the table.
ROWS = {
    "cold": "cold, alone",
    "again": "again at once",
    "repeat": "again, five times in a row",
    "streaming": "again while others stream",
    "tail": "the same, another tail",
    "host": "restored from host memory",
    "disk": "restored from disk after a restart",
    "idle": "cold beside full idle sequences",
    "six": "six prompts in turn",
}

SAVED_BYTES = ("stemma_saved_bytes_total", "stemma_captured_bytes_total")
SAVING_SECONDS = ("stemma_capture_seconds_total",)
RESTORED_BYTES = ("stemma_restored_bytes_total",)
RESTORING_SECONDS = ("stemma_restore_seconds_total",)

SIX = 6


@dataclass
class Samples:
    """Times to the first token in ms, and where each prompt came from."""

    times: list = field(default_factory=list)
    sources: list = field(default_factory=list)
    remark: str = ""

    def add(self, answer):
        self.times.append(answer.first_ms)
        self.sources.append(answer.source)

    @property
    def median(self):
        return statistics.median(self.times)

    @property
    def source(self):
        """Where the prompts came from; with counts if not all came the same way."""
        kinds = sorted(set(self.sources))
        if len(kinds) == 1:
            return kinds[0]
        return " ".join(f"{self.sources.count(kind)} {kind}" for kind in kinds)


class Background:
    """Streams that decode while something else is measured. In a `with`: entering waits until all have begun."""

    def __init__(self, server, prompts, count, length):
        self._prompts = [prompts.fresh(min(256, length)) for _ in range(count)]
        self._tokens = max(64, length)
        self._clients = [server.client() for _ in range(count)]
        self._begun = [threading.Event() for _ in range(count)]
        self._threads = [threading.Thread(target=self._stream, args=(i,), daemon=True) for i in range(count)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        for begun in self._begun:
            begun.wait()
        return self

    def __exit__(self, *_):
        for client in self._clients:
            client.cut()
        for thread in self._threads:
            thread.join()

    def running(self):
        """Whether all of them still stream; otherwise what was just measured had less company than it should."""
        return all(thread.is_alive() for thread in self._threads)

    def _stream(self, number):
        try:
            self._clients[number].ask(self._prompts[number], self._tokens, on_token=self._begun[number].set)
        except Exception:  # pylint: disable=broad-except
            pass  # It was cut off or it failed; running() reports that.
        finally:
            self._begun[number].set()


class Measurement:
    """One server at one length: {row: Samples}, and how fast it saved and restored."""

    def __init__(self, server, prompts, length, sequences, repeats):
        self._server = server
        self._prompts = prompts
        self._length = length
        self._sequences = sequences
        self._repeats = repeats
        self._last = None
        self.rows = {}
        self.saving = None
        self.restoring = None

    def measure(self, wanted):
        self._server.reset()
        # The first pass of a length is slower than the others.
        self._server.ask(self._prompts.fresh(self._length), cache_prompt=False)
        if wanted & {"cold", "again", "repeat", "tail", "idle", "host", "disk", "six"}:
            self._cold_and_again()
        if "tail" in wanted:
            self._tail()
        if "streaming" in wanted:
            self._streaming()
        if wanted & {"host", "six", "idle"}:
            self._in_turn("host" in wanted)
        if "idle" in wanted:
            self._idle()
        return self

    def _ask(self, row, prompt):
        answer = self._server.ask(prompt)
        self.rows.setdefault(row, Samples()).add(answer)
        return answer

    def _cold_and_again(self):
        prompt = None
        for _ in range(self._repeats):
            self._server.reset()
            prompt = self._prompts.fresh(self._length)
            self._ask("cold", prompt)
            # At once: the server has only just begun its work after the turn.
            self._ask("again", prompt)
        for _ in range(5):
            self._ask("repeat", prompt)
        self._last = prompt

    def _tail(self):
        for _ in range(5):
            self._ask("tail", self._prompts.other_tail(self._last, min(32, self._length // 2)))

    def _streaming(self):
        self._server.reset()
        with Background(self._server, self._prompts, max(1, self._sequences - 2), self._length) as others:
            for _ in range(2):
                prompt = self._prompts.fresh(self._length)
                self._server.ask(prompt)
                for _ in range(3):
                    self._ask("streaming", prompt)
            if not others.running():
                self.rows["streaming"].remark = "a stream ended early"
        self._server.wait_until_idle()

    def _in_turn(self, restore):
        """Seven prompts, one after the other; then the same again, each after the six others.

        Servers with many sequences get more prompts, so that a prompt has left its sequence when it comes again."""
        self._server.reset()
        rotation = [self._prompts.fresh(self._length) for _ in range(max(SIX, self._sequences + 2) + 1)]
        for prompt in rotation[:SIX]:
            self._ask("six", prompt)
        for prompt in rotation[SIX:]:
            self._server.ask(prompt)
        if not restore:
            return
        # By now every page of the memory for saved prefixes has been used once: the steady state.
        self._server.settle()
        self._server.reset()
        before = self._server.metrics()
        for prompt in rotation:
            self._server.ask(prompt)
        self._server.settle()
        middle = self._server.metrics()
        for prompt in rotation * self._repeats:
            self._ask("host", prompt)
        after = self._server.metrics()
        self.saving = speed(before, middle, SAVED_BYTES, SAVING_SECONDS)
        self.restoring = speed(middle, after, RESTORED_BYTES, RESTORING_SECONDS)

    def _idle(self):
        """All sequences are full of other prompts by now; a new one takes the place of one of them."""
        for _ in range(min(3, self._repeats)):
            # Other rows measure saving. Here only the memory that others occupy counts.
            self._server.settle()
            self._ask("idle", self._prompts.fresh(self._length))
