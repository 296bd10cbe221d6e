# Usage: python3 tests/program/loading_test.py PROGRAM
#
# A server listens before its model is there, and says so; whoever supervises it hears when it is
# ready and when it ends. What cannot fit into memory is refused before it is tried.
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

program = sys.argv[1]


def call(host, path, method="GET"):
    connection = http.client.HTTPConnection(host, timeout=600)
    connection.request(method, path, "{}" if method == "POST" else None)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read()), answer.getheader("retry-after")


with tempfile.TemporaryDirectory() as folder:
    model = str(pathlib.Path(folder) / "tiny.gguf")
    subprocess.run([program, "make-model", "--arch", "llama", "--layers", "2", "--dim", "64", "--out", model],
                   check=True)
    supervisor = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    supervisor.bind(str(pathlib.Path(folder) / "notify"))
    supervisor.settimeout(600)

    # The next message that says something of `what`; those about progress are passed over.
    def told(what="STATUS"):
        while True:
            message = dict(line.split("=", 1) for line in supervisor.recv(4096).decode().split("\n"))
            if what in message:
                return message
            assert list(message) == ["EXTEND_TIMEOUT_USEC"], message

    def serve(*flags):
        return subprocess.Popen([program, "serve", "--port", "0", "--threads", "1", *flags], stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "NOTIFY_SOCKET": supervisor.getsockname()})

    # A model that does not come: whoever opens a pipe waits until somebody writes to it.
    pipe = str(pathlib.Path(folder) / "pipe.gguf")
    os.mkfifo(pipe)
    with serve("--model", pipe, "--model-id", "none") as server:
        status = told()["STATUS"]
        assert status.startswith("loading"), status
        host = status.split("url=http://")[1]
        assert call(host, "/health") == (200, {"status": "ok"}, None)
        assert call(host, "/ready") == (503, {"status": "loading"}, "1")
        for method, path in [("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/metrics")]:
            code, body, retry = call(host, path, method)
            assert (code, body["error"]["code"], retry) == (503, "loading", "1"), (path, code, body, retry)
        # It may close the pipe when it has seen enough.
        try:
            with open(pipe, "wb") as writer:
                writer.write(b"no model at all")
        except BrokenPipeError:
            pass
        assert server.wait() == 1
        assert "pipe.gguf" in server.stderr.read()

    with serve("--model", model, "--saved-bytes", "1KiB") as server:
        assert told()["STATUS"].startswith("loading")
        ready = told()
        assert ready["READY"] == "1", ready
        assert call(ready["STATUS"].split("url=http://")[1], "/ready") == (200, {"status": "ready"}, None)
        server.send_signal(signal.SIGTERM)
        assert told("STOPPING")["STOPPING"] == "1"
        log = server.stderr.read()
        assert server.wait() == 0
        assert "warning: --saved-bytes 1024 leaves 1024 bytes for a segment of --segment-tokens, which needs" in log, log

    # More than any machine has.
    with serve("--model", model, "--context", "2000000000") as server:
        log = server.stderr.read()
        assert server.wait() == 1
        assert "a context of 2000000000 tokens needs" in log and "choose a context of at most" in log, log

print("ok")
