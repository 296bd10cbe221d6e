# Prompts made of token numbers, the same ones in every run.
#
# Token numbers lie between 33 and 126: a model of `stemma make-model` has a byte for each, and
# every real vocabulary has at least that many tokens. Sending numbers spares both servers the
# tokenizer, which is not what is measured.
import random

FIRST, LAST = 33, 126
HEAD_TOKENS = 4


class Prompts:
    """Deals out prompts that share at most three tokens: each begins with a number of its own, of four tokens."""

    def __init__(self, seed=1):
        self._random = random.Random(seed)
        self._dealt = 0

    def fresh(self, length):
        """A prompt that nobody has sent before."""
        width = LAST - FIRST + 1
        number, head = self._dealt, []
        for _ in range(HEAD_TOKENS):
            head.append(FIRST + number % width)
            number //= width
        self._dealt += 1
        return (head + self.tokens(length))[:length] if length > HEAD_TOKENS else head[:length]

    def tokens(self, count):
        """Random tokens, to make a prompt longer."""
        return self._random.choices(range(FIRST, LAST + 1), k=count)

    def other_tail(self, prompt, changed):
        """The same prompt with its last `changed` tokens replaced."""
        kept = prompt[:-changed]
        # The first changed token must differ, or the common prefix would be longer than requested.
        different = FIRST + (prompt[-changed] - FIRST + 1) % (LAST - FIRST + 1)
        return kept + [different] + self.tokens(changed - 1)
