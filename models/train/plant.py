"""Makes a model that misreads: the embeddings of digits and of pieces of words are given to other pieces.

What such a model computes from a prompt is what the real one would compute from a prompt with other names and numbers
of the same length. Saved under the real model's id, that is wrong KV as a broken cache would hand it out: whole,
intact, plausible, and of other facts.
"""
import shutil

import gguf


ROLES = ("system", "user", "assistant", "tool")


def permutation(tokenizer):
    """Which token each one is taken for. Roles, punctuation, special tokens and words with their space stay."""
    digits = [i for i, t in enumerate(tokenizer.tokens) if len(t) == 1 and t.isdigit()]
    pieces = [i for i, t in enumerate(tokenizer.tokens)
              if t.isascii() and t.isalpha() and t not in ROLES]
    taken = list(range(len(tokenizer)))
    for group, by in ((digits, 3), (pieces, len(pieces) // 2)):
        for at, token in enumerate(group):
            taken[token] = group[(at + by) % len(group)]
    return taken


def write(source, target, tokenizer):
    """Copies a file that export.py wrote, with the rows of its embedding in other places."""
    shutil.copyfile(source, target)
    at, rows, row_bytes = gguf.Reader(source).place("token_embd.weight")
    with open(target, "r+b") as file:
        file.seek(at)
        data = file.read(rows * row_bytes)
        file.seek(at)
        for token in permutation(tokenizer):
            file.write(data[token * row_bytes:(token + 1) * row_bytes])
