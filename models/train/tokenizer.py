"""A byte-level BPE tokenizer: training, encoding, decoding.

Text is split the way llama.cpp splits it for the pre-tokenizer `smollm`: digits stand alone, words keep the one space
before them. Pieces are learned in two rounds. The first learns pieces of words without their space; the second joins
the space to whole frequent words only. So a made-up name is cut into the same pieces after a space and after a quote,
which is what makes it easy to copy from a prompt into the arguments of a tool call.

    python3 tokenizer.py            trains anew and writes tokenizer.json
"""
import collections
import json
import pathlib
import re

PATH = pathlib.Path(__file__).with_name("tokenizer.json")
SIZE = 3072
SPACED_WORDS = 760  # How many words get their space, at most.
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>", "<tool_call>", "</tool_call>",
            "<tool_response>", "</tool_response>")
# The last four are written as text, also by models; the first four never are.
VISIBLE = frozenset(SPECIALS[4:])

SPLIT = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+|\s+(?=\d)|\s+(?!\S)|\s+")
SPECIAL = re.compile("(" + "|".join(re.escape(s) for s in SPECIALS) + ")")
CACHE_WORDS = 400_000


def _byte_letters():
    """A printable character for each byte: the table of byte-level BPE."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, extra = {}, 0
    for byte in range(256):
        if byte in kept:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


LETTER = _byte_letters()
BYTE = {letter: byte for byte, letter in LETTER.items()}
SPACE = LETTER[0x20]


def spell(text):
    return "".join(LETTER[b] for b in text.encode())


class Tokenizer:
    """Immutable but for a cache of words; one thread at a time."""

    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.tokens = [LETTER[b] for b in range(256)] + [a + b for a, b in self.merges] + list(SPECIALS)
        assert len(set(self.tokens)) == len(self.tokens), "two tokens with one spelling"
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.special = {s: self.ids[s] for s in SPECIALS}
        self._rank = {pair: i for i, pair in enumerate(self.merges)}
        self._cache = {}

    @classmethod
    def load(cls, path=PATH):
        return cls(json.loads(pathlib.Path(path).read_text())["merges"])

    def __len__(self):
        return len(self.tokens)

    def encode(self, text, specials=True):
        out = []
        cache = self._cache
        for part in SPECIAL.split(text) if specials and "<" in text else (text,):
            number = self.special.get(part) if specials else None
            if number is not None:
                out.append(number)
                continue
            for word in SPLIT.findall(part):
                ids = cache.get(word)
                if ids is None:
                    ids = self._word(word)
                out.extend(ids)
        return out

    def _word(self, word):
        parts = merge_word(list(spell(word)), self._rank)
        ids = tuple(self.ids[p] for p in parts)
        if len(self._cache) < CACHE_WORDS:
            self._cache[word] = ids
        return ids

    def decode(self, ids):
        out = bytearray()
        for i in ids:
            token = self.tokens[i]
            out += token.encode() if token in self.special else bytes(BYTE[c] for c in token)
        return out.decode(errors="replace")


def merge_word(parts, rank):
    """Joins neighbours, those that were learned first before all others."""
    while len(parts) > 1:
        best = min(range(len(parts) - 1), key=lambda i: rank.get((parts[i], parts[i + 1]), 1 << 30))
        pair = (parts[best], parts[best + 1])
        if pair not in rank:
            break
        joined, i = [], 0
        while i < len(parts):
            if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
                joined.append(parts[i] + parts[i + 1])
                i += 2
            else:
                joined.append(parts[i])
                i += 1
        parts = joined
    return parts


def train(texts, size=SIZE):
    """Learns the merges from some texts. The same texts give the same merges."""
    counts = collections.Counter()
    for text in texts:
        for part in SPECIAL.split(text):
            if part not in SPECIALS:
                counts.update(SPLIT.findall(part))
    wanted = size - 256 - len(SPECIALS)
    bare = collections.Counter()
    spaced = collections.Counter()
    for word, count in counts.items():
        if word.startswith(" ") and word[1:].isalpha():
            bare[spell(word[1:])] += count
            spaced[spell(word[1:])] += count
        else:
            bare[spell(word)] += count
    merges = _learn(bare, wanted - SPACED_WORDS)
    rank = {pair: i for i, pair in enumerate(merges)}
    whole = [w for w, n in sorted(spaced.items(), key=lambda item: (-item[1], item[0]))
             if len(merge_word(list(w), rank)) == 1 and (len(w) > 1 or w in "aAI")]
    return merges + [(SPACE, w) for w in whole[:wanted - len(merges)]]


def _learn(counts, number):
    """Plain BPE over words with counts: the most frequent pair first, ties by spelling."""
    words = [(list(word), count) for word, count in sorted(counts.items())]
    pairs = collections.Counter()
    where = collections.defaultdict(set)
    for i, (parts, count) in enumerate(words):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += count
            where[pair].add(i)
    merges = []
    while len(merges) < number:
        pair = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[pair] < 2:
            break
        merges.append(pair)
        rank = {pair: 0}
        for i in sorted(where.pop(pair)):
            parts, count = words[i]
            for old in zip(parts, parts[1:]):
                pairs[old] -= count
                if pairs[old] <= 0:
                    del pairs[old]
            parts = merge_word(parts, rank)
            words[i] = (parts, count)
            for new in zip(parts, parts[1:]):
                pairs[new] += count
                where[new].add(i)
        pairs.pop(pair, None)
    return merges


def main():
    import random

    import corpus
    from words import Words
    words = Words(random.Random(11))
    texts = ["".join(t for t, _ in corpus.filled(words, long=i % 3 == 0, characters=9000)) for i in range(1000)]
    merges = train(texts)
    tokenizer = Tokenizer(merges)
    assert len(tokenizer) == SIZE, len(tokenizer)
    lines = ",\n".join(json.dumps(m, ensure_ascii=False) for m in merges)
    PATH.write_text('{"merges": [\n' + lines + "\n]}\n")
    count = sum(len(tokenizer.encode(t)) for t in texts[:200])
    print(f"{len(tokenizer)} tokens, {sum(map(len, texts[:200])) / count:.2f} characters a token")


if __name__ == "__main__":
    main()
