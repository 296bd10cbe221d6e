#!/usr/bin/env python3
# Usage: fake_llama_server.py -m FILE --host ADDRESS --port N -np N -c N -ngl N -fa on -b N -ub N
#
# What bench/gpu/run needs of llama-server, without a model: /health, which first says that it
# loads, and streamed answers of /completion. As many prompts as there are slots are remembered, so
# that `cache_n` can be told.
import argparse
import collections
import http.server
import json

parser = argparse.ArgumentParser()
for flag in ("-m", "--host", "-fa"):
    parser.add_argument(flag, required=True)
for flag in ("--port", "-np", "-c", "-ngl", "-b", "-ub"):
    parser.add_argument(flag, type=int, required=True)
given = parser.parse_args()
slots = collections.deque(maxlen=given.np)
asked = 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        global asked
        asked += 1
        self.send_response(200 if self.path == "/health" and asked > 2 else 503)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/completion" and body["stream"] and isinstance(body["prompt"], list)
        known = body["prompt"] in slots
        if not known:
            slots.append(body["prompt"])
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for _ in range(body["n_predict"]):
                self.event({"index": 0, "content": "x", "tokens": [88], "stop": False})
            self.event({"content": "", "stop": True,
                        "timings": {"cache_n": len(body["prompt"]) - 1 if known else 0}})
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # The client left.

    def event(self, value):
        text = b"data: " + json.dumps(value).encode() + b"\n\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))


http.server.ThreadingHTTPServer((given.host, given.port), Handler).serve_forever()
