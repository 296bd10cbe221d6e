# Usage: python3 tests/program/serve_test.py PROGRAM
#
# A server that is told to end answers those it cuts off, before it closes their connections.
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

program = sys.argv[1]


def call(host, method, path, body=None):
    connection = http.client.HTTPConnection(host, timeout=600)
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


with tempfile.TemporaryDirectory() as folder:
    model = str(pathlib.Path(folder) / "tiny.gguf")
    subprocess.run([program, "make-model", "--arch", "llama", "--layers", "2", "--dim", "64", "--out", model],
                   check=True)
    with subprocess.Popen([program, "serve", "--model", model, "--port", "0", "--context", "65536",
                           "--drain-seconds", "0"],
                          stderr=subprocess.PIPE, text=True) as server:
        host = next(line for line in server.stderr if " ready " in line).split(" url=http://")[1].strip()
        threading.Thread(target=lambda: list(server.stderr), daemon=True).start()
        answers = {}

        def ask(name, **more):
            # Neither ends by itself.
            body = {"prompt": name, "max_tokens": 30000, "ignore_eos": True, **more}
            answers[name] = call(host, "POST", "/v1/completions", json.dumps(body))

        clients = [threading.Thread(target=ask, args=("whole",)),
                   threading.Thread(target=ask, args=("stream",), kwargs={"stream": True})]
        for client in clients:
            client.start()
        deadline = time.monotonic() + 240
        while sum("generated_tokens" in slot for slot in json.loads(call(host, "GET", "/slots")[1])) < 2:
            assert time.monotonic() < deadline and all(client.is_alive() for client in clients)
            time.sleep(0.02)
        server.terminate()
        for client in clients:
            client.join()
        assert server.wait(240) == 0

print(answers["whole"], answers["stream"][0], answers["stream"][1][-200:])
assert answers["whole"][0] == 503 and b"the server is ending" in answers["whole"][1]
assert answers["stream"][0] == 200 and b"the server is ending" in answers["stream"][1]
