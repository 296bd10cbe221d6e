# One HTTP client: streams an answer over a connection that it keeps, and notes when each token
# arrived.
import http.client
import json
import select
import socket
import time

ANSWER_SECONDS = 300


class RequestFailed(Exception):
    """A server refused a request, or its answer broke off."""


class Answer:
    """What came back: arrival times of tokens in seconds since the request was sent, and the server's report."""

    def __init__(self):
        self.times = []
        self.text = ""
        self.reused = 0
        self.report = {}
        self.logprobs = []

    @property
    def first_ms(self):
        return self.times[0] * 1e3

    @property
    def source(self):
        """Where the prompt came from: computed, live, restored, or the name of a tier."""
        prompt = self.reused + self.report.get("evaluated_tokens", 0)
        if self.reused * 2 < prompt or self.reused == 0:
            return "computed"
        if not self.report:
            return "reused"
        if self.report.get("tier"):
            return self.report["tier"]["name"]
        steps = self.report.get("steps", {})
        saved = sum(steps.get(name, 0) for name in ("segments", "state", "checkpoint"))
        held = sum(steps.get(name, 0) for name in ("stay", "trim", "fork"))
        return "restored" if saved > held else "live"


class OpenAi:
    """`/v1/completions`, as `stemma serve` answers it."""

    path = "/v1/completions"

    @staticmethod
    def body(prompt, tokens, **more):
        return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}, **more}

    @staticmethod
    def read(event, answer):
        """Takes an event into the answer. True if it brought a token."""
        report = event.get("stemma")
        if report:
            answer.report = report
            answer.reused = report["reused_tokens"]
        token = False
        for choice in event.get("choices", []):
            answer.text += choice.get("text", "")
            # An answer that ends before its first whole character had tokens, too.
            ended = choice.get("finish_reason") is not None and not answer.times
            token = token or bool(choice.get("text")) or ended
            if choice.get("logprobs"):
                answer.logprobs.append(choice["logprobs"])
        return token


class LlamaCompletion:
    """`/completion`, as llama-server answers it."""

    path = "/completion"

    @staticmethod
    def body(prompt, tokens, **more):
        return {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "cache_prompt": True, **more}

    @staticmethod
    def read(event, answer):
        answer.text += event.get("content", "")
        if event.get("stop"):
            answer.reused = event.get("timings", {}).get("cache_n", 0)
        # A token that is half a character has an empty text, but it counts as a token.
        return bool(event.get("content")) or bool(event.get("tokens"))


class Client:
    """One client with one connection. One thread at a time, except cut(), which any thread may call."""

    def __init__(self, host, dialect):
        self.host = host
        self.dialect = dialect
        self._connection = http.client.HTTPConnection(host, timeout=ANSWER_SECONDS)
        self._cut = False

    def ask(self, prompt, tokens=4, on_token=None, **more):
        """Sends a prompt and reads its streamed answer to the end."""
        # All of our own work is done before the clock starts.
        body = json.dumps(self.dialect.body(prompt, tokens, **more), separators=(",", ":")).encode()
        self._connect()
        answer = Answer()
        begin = time.perf_counter()
        try:
            self._connection.request("POST", self.dialect.path, body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            if response.status != 200:
                text = response.read().decode(errors="replace")
                raise RequestFailed(f"{self.dialect.path} answered {response.status}: {text[:500]}")
            self._read(response, answer, begin, on_token)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            # If cut() closes the connection during a read, the reader gets one of these.
            self._connection.close()
            raise RequestFailed(f"the answer of {self.host}{self.dialect.path} broke off: {error!r}") from error
        if not answer.times:
            raise RequestFailed(f"{self.host}{self.dialect.path} answered without a token")
        return answer

    def call(self, method, path, body=None):
        """A request that is not streamed; its body as text."""
        self._connect()
        try:
            self._connection.request(method, path, body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            text = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise RequestFailed(f"{self.host}{path} did not answer: {error!r}") from error
        if response.status != 200:
            raise RequestFailed(f"{method} {path} answered {response.status}: {text[:500]}")
        return text

    def cut(self):
        """Ends a stream that another thread reads."""
        self._cut = True
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It had already ended.

    def close(self):
        self._connection.close()

    def _connect(self):
        if self._cut:
            raise RequestFailed("this client was cut off")
        sock = self._connection.sock
        # A server closes a connection that was idle for some seconds; the socket is then readable.
        if sock is not None and select.select([sock], [], [], 0)[0]:
            self._connection.close()
        if self._connection.sock is None:
            try:
                self._connection.connect()
            except OSError as error:
                raise RequestFailed(f"cannot connect to {self.host}: {error}") from error

    def _read(self, response, answer, begin, on_token):
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter() - begin
            event = json.loads(line[6:])
            if "error" in event:
                raise RequestFailed(f"the answer broke off: {event['error'].get('message', event['error'])}")
            if self.dialect.read(event, answer):
                answer.times.append(now)
                if on_token is not None:
                    on_token()
