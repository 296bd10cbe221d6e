# Conversations of words, and servers that can be killed.
#
# The models of `stemma make-model` have a token for each byte, so a text of n ASCII letters has n
# tokens, and what a turn leaves behind is counted exactly: its prompt and its answer but for the
# last token, which nobody has computed on.
import json
import random
import time

from client import Client, OpenAi, RequestFailed
from servers import ServerFailed, Stemma

WORDS = ("river stone cloud maple lantern copper window garden marble thunder velvet harbor meadow silver candle "
         "falcon winter bridge forest ember").split()


def text_of(seed, length):
    """Words that follow from the seed, this many letters of them."""
    chosen = random.Random(seed)
    text = ""
    while len(text) < length:
        text += chosen.choice(WORDS) + " "
    return text[:length]


class Chat(Stemma):
    """`stemma serve`, asked with messages."""

    def __init__(self, program, model, settings):
        super().__init__(program, model, settings)
        self._chat = None
        self.timings = {}  # Of the last answer.

    def turn(self, messages, answer_tokens):
        """Asks, and returns (text of the answer, tokens of the prompt, how many of them were reused, the report)."""
        if self._chat is None:
            self._chat = Client(self.host, OpenAi)
        body = {"messages": messages, "max_tokens": answer_tokens, "temperature": 0, "ignore_eos": True}
        answer = json.loads(self._chat.call("POST", "/v1/chat/completions", json.dumps(body)))
        self.timings = answer["timings"]
        usage = answer["usage"]
        return (answer["choices"][0]["message"]["content"], usage["prompt_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"], answer["stemma"])

    def state(self):
        """What /cache says."""
        return json.loads(self._client.call("GET", "/cache"))

    def wait_for_tiers(self):
        """Waits until nothing is on its way to a tier."""
        deadline = time.monotonic() + 60
        while self.metrics().value("stemma_tier_waiting"):
            if time.monotonic() > deadline:
                raise ServerFailed("a tier had not taken what it was given after a minute")
            time.sleep(0.05)

    def kill(self):
        """kill -9: nothing is written any more."""
        for client in (self._chat, self._client):
            if client is not None:
                client.close()
        self.process.kill()
        self.process.wait()


class Conversation:
    """Grows by a question and an answer a turn. `known` is how much of its next prompt has been computed before."""

    def __init__(self, seed, system, question_tokens=150, answer_tokens=24, known=0):
        self.messages = [{"role": "system", "content": system}]
        self.turns = 0
        self.known = known
        self._seed = seed
        self._question_tokens = question_tokens
        self._answer_tokens = answer_tokens

    def go_on(self, server):
        """One turn. Returns (tokens that could be reused, tokens that were, the server's report)."""
        question = {"role": "user", "content": text_of(f"{self._seed}/{self.turns}", self._question_tokens)}
        prompt = [*self.messages, question]
        said, tokens, reused, report = server.turn(prompt, self._answer_tokens)
        if not said.isascii():
            raise RequestFailed(f"the model answered with other letters than ASCII: {said!r}")
        possible, self.known = self.known, tokens + self._answer_tokens - 1
        self.messages = [*prompt, {"role": "assistant", "content": said}]
        self.turns += 1
        return possible, reused, report
