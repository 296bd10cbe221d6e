"""Training rows: dialogues as token numbers of one length, with a weight for each.

Row i of a kind is a pure function of the seed and i, whoever computes it, so that a training can be repeated however
many processes make its data. A Corpus lets processes fill shared memory, in order, while the training reads it.
"""
import mmap
import multiprocessing
import random
import time

import numpy as np

import dialogue
from words import Words

OTHERS_WEIGHT = 0.1  # The weight of text that the model does not write itself; the rest counts 1.
PATIENCE_SECONDS = 120


def filled(words, long, characters):
    """A dialogue with turns enough for so many characters, as pieces of text."""
    talk = dialogue.long_dialogue(words) if long else dialogue.short_dialogue(words)
    size, seen = 0, 0
    while size < characters:
        talk.turn()
        size += sum(len(m["content"]) + 40 for m in talk.messages[seen:])
        seen = len(talk.messages)
    return dialogue.render(talk.messages, talk.specs)


def row(tokenizer, words, length, long):
    """Tokens (length + 1 of them) and the weight of each as a target."""
    tokens, weights = [], []
    while len(tokens) < length + 1:
        for text, ours in filled(words, long, int((length - len(tokens)) * 4.4)):
            ids = tokenizer.encode(text)
            tokens += ids
            weights += [255 if ours else int(255 * OTHERS_WEIGHT)] * len(ids)
        if len(tokens) < length + 1:  # Rare; a second dialogue would contradict the first.
            missing = length + 1 - len(tokens)
            tokens += [tokenizer.special["<|pad|>"]] * missing
            weights += [0] * missing
    return np.array(tokens[:length + 1], np.uint16), np.array(weights[:length + 1], np.uint8)


class Pool:
    """Rows of one length, filled by processes in order."""

    def __init__(self, name, rows, length, long, seed):
        self.name, self.rows, self.length, self.long, self.seed = name, rows, length, long, seed
        # Anonymous memory is shared with processes forked later.
        def shared(shape, kind):
            return np.frombuffer(mmap.mmap(-1, int(np.prod(shape)) * np.dtype(kind).itemsize), kind).reshape(shape)

        self.tokens = shared((rows, length + 1), np.uint16)
        self.weights = shared((rows, length + 1), np.uint8)
        self.done = shared((rows,), np.uint8)

    def fill(self, tokenizer, index):
        words = Words(random.Random(f"{self.seed} {self.name} {index}"))
        self.tokens[index], self.weights[index] = row(tokenizer, words, self.length, self.long)
        self.done[index] = 1

    def take(self, first, count):
        """So many rows from a place on, round and round. Waits until they are there."""
        index = np.arange(first, first + count) % self.rows
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.done[index].all():
            time.sleep(0.002)
            if time.monotonic() > deadline:
                raise RuntimeError(f"no data for {PATIENCE_SECONDS} seconds: the processes that make it are gone")
        return self.tokens[index], self.weights[index]


def _work(tokenizer, pools, worker, workers):
    """Fills every workers-th row; of short rows several at a time, because training begins with those."""
    longest = max(pool.length for pool in pools)
    rows = [(pool, iter(range(worker, pool.rows, workers)), max(1, longest * 2 // (3 * pool.length)))
            for pool in pools]
    while rows:
        for entry in list(rows):
            pool, indexes, at_once = entry
            for _ in range(at_once):
                index = next(indexes, None)
                if index is None:
                    rows.remove(entry)
                    break
                pool.fill(tokenizer, index)


class Corpus:
    """Pools by name, and the processes that fill them."""

    def __init__(self, tokenizer, pools, workers):
        self.pools = {pool.name: pool for pool in pools}
        context = multiprocessing.get_context("fork")
        self._processes = [context.Process(target=_work, args=(tokenizer, pools, i, workers), daemon=True)
                           for i in range(workers)]
        for process in self._processes:
            process.start()

    def tokens(self):
        return sum(int(p.done.sum()) * p.length for p in self.pools.values())

    def close(self):
        for process in self._processes:
            process.terminate()
            process.join()
