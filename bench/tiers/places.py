# Places where servers keep saved entries: a directory of one machine, a Redis, a shared directory.
#
# Each starts empty, is the same for every server started with its settings(), and is removed by
# end().
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from servers import ServerFailed, _die_with_parent

MIB = 1 << 20


class Directory:
    """`--disk` or `--shared-dir`: a folder below the given one."""

    def __init__(self, name, folder, size):
        self.name = name
        self.shared = name == "shared"
        self._size = size
        self._folder = tempfile.mkdtemp(prefix=f"stemma-{name}-", dir=folder)

    def settings(self, write="through"):
        words = ["--shared-dir", "--shared-bytes", "--shared-write"] if self.shared else ["--disk", "--disk-bytes",
                                                                                          "--disk-write"]
        return [words[0], os.path.join(self._folder, "tier"), words[1], self._size, words[2], write]

    def end(self):
        shutil.rmtree(self._folder, ignore_errors=True)


class Redis:
    """`--redis`: a redis-server of our own on a free port of this machine, which evicts and writes nothing to disk."""

    name = "redis"
    shared = True

    def __init__(self, program, folder, size):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._folder = tempfile.mkdtemp(prefix="stemma-redis-", dir=folder)
        try:
            self._process = subprocess.Popen(
                [program, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no",
                 "--maxmemory", str(size), "--maxmemory-policy", "allkeys-lru", "--dir", self._folder],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                preexec_fn=_die_with_parent)
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise ServerFailed(f"cannot start {program}: {error.strerror}") from error
        deadline = time.monotonic() + 30
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.end()
                raise ServerFailed(f"{program} does not answer on port {self.port}")
            time.sleep(0.02)

    def settings(self, write="through"):
        return ["--redis", f"redis://127.0.0.1:{self.port}", "--redis-write", write]

    def empty(self):
        """FLUSHALL: everything in it is gone at once."""
        if not self._answers(b"FLUSHALL\r\n", b"+OK"):
            raise ServerFailed("redis-server did not take FLUSHALL")

    def stall(self):
        """It stops answering until go_on(), without closing a connection."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self._process.send_signal(signal.SIGCONT)

    def end(self):
        if self._process.poll() is None:
            self.go_on()
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self, command=b"PING\r\n", answer=b"+PONG"):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
                connection.sendall(command)
                return connection.recv(64).startswith(answer)
        except OSError:
            return False
