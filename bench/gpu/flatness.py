# Whether memory stays flat over many requests that push each other out of the cache.
import threading

import machine
from client import RequestFailed
from metrics import difference

CLIENTS = 4
PROMPT_TOKENS = 256
ALLOWED_SHARE, ALLOWED_MIB = 0.01, 32  # Growth up to the larger of both counts as flat.


class Snapshot:
    """{what: MiB} at one moment."""

    def __init__(self, server, metrics):
        self.mib = machine.process_mib(server.process.pid)
        used, whose = machine.gpu_mib(server.process.pid)
        if used is not None:
            self.mib[f"GPU, {whose}"] = used
        for name, value in metrics.containing("pinned").items():
            if "bytes" in name and not name.endswith("_total"):
                self.mib[name] = value / 2**20


class Flatness:
    """Snapshots after each quarter of the requests, and how many cached things gave way meanwhile."""

    def __init__(self, snapshots, evictions, failed):
        self.snapshots = snapshots
        self.evictions = evictions
        self.failed = failed

    def growth(self):
        """{what: (MiB after the first quarter, MiB at the end, whether that is flat)}."""
        first, last = self.snapshots[0].mib, self.snapshots[-1].mib
        return {name: (first[name], last[name],
                       last[name] - first[name] <= max(ALLOWED_MIB, ALLOWED_SHARE * first[name]))
                for name in first if name in last}

    @property
    def flat(self):
        return not self.failed and all(flat for _, _, flat in self.growth().values())


def measure(server, prompts, requests):
    """Sends the requests in quarters. The first one fills the cache; what grows after it is not filling."""
    before = server.metrics()
    snapshots, failed = [], []
    for _ in range(4):
        waiting = [prompts.fresh(PROMPT_TOKENS) for _ in range(max(1, requests // 4))]
        _send(server, waiting, failed)
        snapshots.append(Snapshot(server, server.metrics()))
    evictions = difference(before, server.metrics(), "stemma_evictions_total")
    return Flatness(snapshots, evictions or 0, failed)


def _send(server, waiting, failed):
    """Several clients take prompts from one list until it is empty."""
    clients = [server.client() for _ in range(CLIENTS)]

    def work(client):
        try:
            while True:
                client.ask(waiting.pop(), 4)
        except IndexError:
            pass  # Nothing is left.
        except RequestFailed as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(client,), daemon=True) for client in clients]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for client in clients:
            client.cut()


def describe(result, requests):
    lines = [f"memory over {requests} requests, {result.evictions:.0f} evictions, {len(result.failed)} clients failed "
             "(MiB after a quarter and at the end)"]
    for name, (first, last, flat) in result.growth().items():
        lines.append(f"  {name:32}{first:10.0f}{last:10.0f}  {'flat' if flat else 'GROWS'}")
    if not result.evictions:
        lines.append("  nothing was evicted: lower --flat-bytes or send more requests")
    return lines
