# The table at the end: each row at each length beside its baselines, and whether it met its bars.
from rows import ROWS

# The bars of the rows on an H200 with the 8B shape: {tokens: (ms, times faster than cold)}.
HOST_BARS = {8192: (50, 7), 32768: (170, 13)}
LIVE_FACTOR = 1.3
IDLE_FACTOR = 1.05
LLAMA_FACTOR = 1.10
LLAMA_HOST_FACTOR = 10
SAVING_GB_S, RESTORING_GB_S = 40, 35
WAIT_P99_MS = 10


class Bar:
    """One condition: what it says, and whether it holds."""

    def __init__(self, text, met):
        self.text = text
        self.met = bool(met)


def verdict(bars):
    """met, MISSED with the conditions that do not hold, or a dash where there is none."""
    if not bars:
        return "-"
    missed = [bar.text for bar in bars if not bar.met]
    return "MISSED: " + ", ".join(missed) if missed else "met"


def row_bars(row, length, ours, live=None, llama=None, disk_ms=None):
    """The conditions of one cell of the table that can be judged with what was measured.

    `ours`, `live` and `llama` are {row: Samples} of one length."""
    time = ours[row].median
    bars = []
    if row in ("again", "repeat", "streaming") and live and row in live:
        bars.append(Bar(f"<= {LIVE_FACTOR}x live", time <= LIVE_FACTOR * live[row].median))
    if row == "host":
        bars.append(Bar("all restored", set(ours[row].sources) == {"restored"}))
        if length in HOST_BARS:
            ms, factor = HOST_BARS[length]
            bars.append(Bar(f"<= {ms} ms", time <= ms))
            if "cold" in ours:
                bars.append(Bar(f">= {factor}x faster than cold", time * factor <= ours["cold"].median))
    if row == "disk":
        read_ms, bar_ms = disk_ms or (0, None)
        # A disk that is slower than computing is rightly not used.
        slow = "cold" in ours and read_ms > ours["cold"].median
        bars.append(Bar("all from disk", slow or set(ours[row].sources) == {"disk"}))
        if bar_ms is not None:
            bars.append(Bar(f"<= {bar_ms:.0f} ms", time <= bar_ms))
    if row == "idle" and "cold" in ours:
        bars.append(Bar(f"<= {IDLE_FACTOR}x cold", time <= IDLE_FACTOR * ours["cold"].median))
    if llama and row in llama:
        theirs = llama[row].median
        if row == "host":
            bars.append(Bar(f">= {LLAMA_HOST_FACTOR}x faster than llama-server", time * LLAMA_HOST_FACTOR <= theirs))
        else:
            bars.append(Bar(f"<= {LLAMA_FACTOR}x llama-server", time <= LLAMA_FACTOR * theirs))
    return bars


class Report:
    """Collects what was measured: {server: {length: {row: Samples}}}, lines of text and their bars."""

    def __init__(self, judge):
        self._judge = judge
        self.measured = {"stemma": {}, "live": {}, "llama": {}}
        self.disk_ms = {}  # {length: (the disk's time, the bar)}
        self._facts = []
        self.missed = 0

    def add(self, server, length, rows):
        self.measured[server].setdefault(length, {}).update(rows)

    def fact(self, text, bars=()):
        """A line besides the table, with its bars."""
        self._facts.append((text, list(bars)))

    def lines(self):
        """Everything so far, ready to be printed. Counts anew what was missed."""
        self.missed = 0
        facts = [f"{text}  {self._verdict(bars)}" if bars else text for text, bars in self._facts]
        table = []
        for length, ours in self.measured["stemma"].items():
            for row in (row for row in ROWS if row in ours):
                table.append(self._line(row, length, ours))
        head = (f"{'row':36}{'tokens':>7}{'ms':>10}{'slowest':>10}  {'from':24}{'live ms':>10}{'x live':>8}"
                f"{'llama ms':>10}{'x llama':>8}{'x cold':>8}  bars")
        notes = ["", "ms is the median time to the first token. x live, x llama and x cold: ours over the time of",
                 "`--reuse live`, of llama-server and of the cold row; below 1 is faster."]
        return ([head, *table, *notes] if table else []) + (["", *facts] if facts else [])

    def _verdict(self, bars):
        if not self._judge:
            return "-"
        self.missed += sum(not bar.met for bar in bars)
        return verdict(bars)

    def _line(self, row, length, ours):
        live = self.measured["live"].get(length, {})
        llama = self.measured["llama"].get(length, {})
        samples = ours[row]
        bars = row_bars(row, length, ours, live, llama, self.disk_ms.get(length))

        def beside(others):
            if row not in others:
                return f"{'-':>10}{'-':>8}"
            return f"{others[row].median:10.1f}{samples.median / others[row].median:8.2f}"

        cold = f"{samples.median / ours['cold'].median:8.3f}" if "cold" in ours else f"{'-':>8}"
        remark = f" ({samples.remark})" if samples.remark else ""
        return (f"{ROWS[row]:36}{length:7}{samples.median:10.1f}{max(samples.times):10.1f}  {samples.source:24}"
                f"{beside(live)}{beside(llama)}{cold}  {self._verdict(bars)}{remark}")


def speed_facts(report, length, measurement):
    """How fast the engine saved and restored while the rows of one length were measured."""
    for word, value, bar in (("saving", measurement.saving, SAVING_GB_S),
                             ("restoring", measurement.restoring, RESTORING_GB_S)):
        if value is None:
            report.fact(f"{word} at {length} tokens: /metrics does not say")
        else:
            report.fact(f"{word} at {length} tokens: {value:.1f} GB/s of engine time",
                        [Bar(f">= {bar} GB/s", value >= bar)])
