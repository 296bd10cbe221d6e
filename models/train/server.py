"""A `stemma serve` process to ask, and HTTP in a few words."""
import http.client
import json
import queue
import subprocess
import threading
import urllib.parse

READY_SECONDS = 120
ANSWER_SECONDS = 300


class Server:
    """A server that somebody else runs (by its URL), or one of our own over a model."""

    def __init__(self, url=None, program=None, model=None, settings=()):
        self.process = None
        if url is None:
            command = [program, "serve", "--model", str(model), "--port", "0", *map(str, settings)]
            self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace")
            ready, self.log = queue.Queue(), []
            threading.Thread(target=self._read, args=(ready,), daemon=True).start()
            url = ready.get(timeout=READY_SECONDS)
            if url is None:
                raise RuntimeError("the server did not start:\n" + "".join(self.log[-15:]))
        self.url = url
        self._address = urllib.parse.urlparse(url).netloc

    def _read(self, ready):
        for line in self.process.stderr:
            self.log.append(line)
            if " ready " in line and " url=" in line:
                ready.put(line.rsplit(" url=", 1)[1].strip())
        ready.put(None)

    def call(self, path, body=None):
        """The answer as JSON; an answer that is no 200 is an error."""
        return json.loads(self.text(path, body))

    def counter(self, name):
        """A counter of /metrics, all its labels together."""
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.text("/metrics").splitlines()
                   if line.startswith((name + "{", name + " ")))

    def text(self, path, body=None):
        connection = http.client.HTTPConnection(self._address, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {text[:500]}")
        return text

    def close(self):
        if self.process:
            self.process.terminate()
            self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
