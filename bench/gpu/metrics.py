# Reads /metrics: numbers by name, differences between two readings, and quantiles of histograms.
import math
import re

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_BOUND = re.compile(r'(?:^|,)le="([^"]*)"')


class Reading:
    """One reading of /metrics. A name that the server does not have is None, so that old servers can be measured."""

    def __init__(self, text):
        self._samples = {}
        for line in text.splitlines():
            found = _SAMPLE.match(line)
            if found:
                name, labels, value = found.groups()
                self._samples.setdefault(name, {})[labels or ""] = float(value)

    def value(self, *names):
        """The sum over all labels of the first of these names that is there."""
        for name in names:
            if name in self._samples:
                return sum(self._samples[name].values())
        return None

    def containing(self, part):
        """{name: value} of the names with this part in them."""
        return {name: sum(labels.values()) for name, labels in self._samples.items() if part in name}

    def buckets(self, name):
        """A histogram as [(upper bound, how many values up to it)], or None."""
        labels = self._samples.get(name + "_bucket")
        if not labels:
            return None
        bounds = ((_BOUND.search(label).group(1), count) for label, count in labels.items())
        return sorted((math.inf if bound == "+Inf" else float(bound), count) for bound, count in bounds)


def difference(before, after, *names):
    """How much a counter grew between two readings, or None."""
    old, new = before.value(*names), after.value(*names)
    return None if old is None or new is None else new - old


def speed(before, after, bytes_names, seconds_names):
    """GB/s between two readings, or None where the server does not say or nothing was moved."""
    moved = difference(before, after, *bytes_names)
    seconds = difference(before, after, *seconds_names)
    return moved / seconds / 1e9 if moved and seconds else None


def quantile(before, after, name, q):
    """A quantile of what a histogram counted between two readings, in its own unit, or None.

    It is exact at the bounds of buckets and linear between them. Beyond the last bound it is infinite."""
    old, new = before.buckets(name), after.buckets(name)
    if old is None or new is None:
        return None
    counts = [(bound, count - earlier) for (bound, count), (_, earlier) in zip(new, old)]
    total = counts[-1][1]
    if total <= 0:
        return None
    low, below = 0.0, 0.0
    for bound, count in counts:
        if count >= q * total and count > below:
            return bound if math.isinf(bound) else low + (bound - low) * (q * total - below) / (count - below)
        low, below = bound, count
    return math.inf


def percentile(values, q):
    """A quantile of plain numbers: the smallest that at least a share q of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else None
