# Servers as our child processes: started, waited for, ended by their process ids.
#
# A server ends with the program that started it, also if that is killed: the kernel then sends
# SIGTERM (Linux only).
import collections
import ctypes
import http.client
import json
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

from client import Client, LlamaCompletion, OpenAi, RequestFailed
from metrics import Reading

READY_SECONDS = 300
END_SECONDS = 120


class ServerFailed(Exception):
    """A server could not be started, or ended by itself."""


def _die_with_parent():
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # 1 is PR_SET_PDEATHSIG.


def wait_until_steady(read, clock=time.monotonic, sleep=time.sleep):
    """Waits until read() has given the same value for two seconds, two minutes at most. Returns the seconds it took.

    A value of None means that there is nothing to wait for."""
    begin = since = clock()
    value = read()
    while value is not None and clock() - since < 2 and clock() - begin < 120:
        sleep(0.1)
        newer = read()
        if newer != value:
            value, since = newer, clock()
    return since - begin


class Server:
    """A process with an HTTP address. Use it in a `with`: leaving that ends it."""

    name = "server"
    dialect = OpenAi

    def __init__(self, command):
        self.command = [str(word) for word in command]
        self.last_lines = collections.deque(maxlen=30)
        self.host = None
        self.ready_line = ""
        self._ready = queue.Queue()
        self._client = None
        try:
            # A session of its own, so that Ctrl-C reaches only this program, which then ends the
            # server in order.
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                errors="replace", start_new_session=True, preexec_fn=_die_with_parent)
        except OSError as error:
            raise ServerFailed(f"cannot start {self.command[0]}: {error.strerror}") from error
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        try:
            self._wait_until_ready()
        except BaseException:
            self.end()
            raise
        self._client = self.client()
        return self

    def __exit__(self, _, error, __):
        died = isinstance(error, RequestFailed) and self._has_died()
        status = self.end()
        if died:
            # The server's last lines say more than the broken connection.
            raise ServerFailed(f"{self.name} ended by itself with status {status}; its last lines:\n"
                               f"{''.join(self.last_lines)}") from error

    def client(self):
        """Another client of this server, with a connection of its own."""
        return Client(self.host, self.dialect)

    def ask(self, prompt, tokens=4, **more):
        return self._client.ask(prompt, tokens, **more)

    def end(self):
        """SIGTERM, then SIGKILL if that does not help. Returns the exit status."""
        if self._client is not None:
            self._client.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        status = self.process.wait()
        self._reader.join(5)
        return status

    def reset(self):
        """Forgets everything that is cached, where the server can."""

    def settle(self):
        """Waits until nothing is left to be saved, where the server can tell."""

    def wait_until_idle(self):
        """Waits until no request is under way, where the server can tell. Clients that were cut off leave some."""

    def wait_until_pinned(self):
        """Waits until no more memory is being pinned, where the server can tell. Returns the seconds it took."""
        return 0

    def metrics(self):
        return Reading("")

    def _has_died(self):
        """A process closes its connections a moment before it is gone, so it gets that moment."""
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self):
        for line in self.process.stderr:
            self.last_lines.append(line)
            self._notice(line)
        self._ready.put(None)

    def _notice(self, line):
        """Looks for the line that says where the server listens."""

    def _wait_until_ready(self):
        raise NotImplementedError

    def _complain(self, what):
        self.end()
        raise ServerFailed(f"{what}; its last lines:\n{''.join(self.last_lines)}")


class Stemma(Server):
    """`stemma serve` on a port that is free. It says on standard error when it is ready, and where."""

    name = "stemma"
    dialect = OpenAi

    def __init__(self, program, model, settings):
        # Without a line for each request, its last lines show what went wrong.
        super().__init__([program, "serve", "--model", model, "--host", "127.0.0.1", "--port", "0", "--quiet", "on",
                          *settings])

    def reset(self):
        self._client.call("POST", "/cache/reset", "{}")

    def settle(self):
        # The server waits some time for its tiers, and reports if they need more. Five minutes are
        # enough to write any prompt.
        deadline = time.monotonic() + 300
        while not json.loads(self._client.call("POST", "/cache/save", "{}")).get("in_tiers", True):
            if time.monotonic() > deadline:
                raise ServerFailed("the disk tier had not taken everything after five minutes")

    def wait_until_idle(self):
        deadline = time.monotonic() + 60
        while self.metrics().value("stemma_requests_running"):
            if time.monotonic() > deadline:
                raise ServerFailed("requests whose clients had left were still under way a minute later")

    def wait_until_pinned(self):
        # Pinning continues in the background after the start, and slows copies until it is done.
        def pinned_bytes():
            levels = [value for name, value in self.metrics().containing("pinned").items()
                      if "bytes" in name and not name.endswith("_total")]
            return sum(levels) if levels else None

        return wait_until_steady(pinned_bytes)

    def metrics(self):
        return Reading(self._client.call("GET", "/metrics"))

    def _notice(self, line):
        if " ready " in line and " url=http://" in line:
            self.ready_line = line.split(" ready ", 1)[1].strip()
            self._ready.put(line.split(" url=http://")[1].split()[0])

    def _wait_until_ready(self):
        try:
            self.host = self._ready.get(timeout=READY_SECONDS)
        except queue.Empty:
            self._complain(f"stemma was not ready after {READY_SECONDS} seconds")
        if self.host is None:
            self._complain(f"stemma ended with status {self.process.wait()}")


class LlamaServer(Server):
    """llama-server with its own defaults, but for the memory and the batches, which are those that Stemma gets."""

    name = "llama-server"
    dialect = LlamaCompletion

    def __init__(self, program, model, sequences, context, batch, gpu):
        # It cannot report which free port it took, so choose one for it.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        super().__init__([program, "-m", model, "--host", "127.0.0.1", "--port", port, "-np", sequences, "-c", context,
                          "-ngl", 99 if gpu else 0, "-fa", "on", "-b", batch, "-ub", batch])
        self.host = f"127.0.0.1:{port}"

    def _wait_until_ready(self):
        deadline = time.monotonic() + READY_SECONDS
        while self.process.poll() is None:
            try:
                connection = http.client.HTTPConnection(self.host, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass  # It does not listen yet.
            finally:
                connection.close()
            if time.monotonic() > deadline:
                self._complain(f"llama-server was not ready after {READY_SECONDS} seconds")
            try:
                # Between two polls, waits for the end of its output: it offers no other event.
                self._ready.get(timeout=0.1)
            except queue.Empty:
                pass
        self._complain(f"llama-server ended with status {self.process.wait()}")
