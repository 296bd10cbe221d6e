"""How many answers of held-out dialogues a model gives word for word, in one pass over each.

An answer counts if every token of it is the model's best after the right tokens before it: then greedy decoding
would have said it. Names, tools and half of the phrasings are ones that training never saw.
"""
import collections
import random

import torch

import dialogue
import talk
import worlds
from words import Words

SMALL_TALK = {answer for _, answer in talk.INTENTS} | {dialogue.NOTED, dialogue.READ}
KINDS = ("fact", "not in notes", "call", "after call", "talk")


def kind_of(answer, after):
    if answer.startswith("<tool_call>"):
        return "call"
    if after == "tool":
        return "after call"
    if answer == worlds.UNKNOWN:
        return "not in notes"
    return "talk" if answer in SMALL_TALK else "fact"


def held_out_dialogues(count, length, long, seed):
    """Dialogues of about so many tokens, as (messages, specs)."""
    out = []
    for i in range(count):
        words = Words(random.Random(f"judge {seed} {long} {i}"), evaluating=True)
        make = dialogue.long_dialogue if long else dialogue.short_dialogue
        talking, size = make(words), 0
        while size < length * 3:
            talking.turn()
            size = sum(len(m["content"]) + 40 for m in talking.messages)
        out.append((talking.messages, talking.specs))
    return out


def encode(tokenizer, messages, specs, length):
    """Token numbers, and (begin, end, kind) of every answer that fits."""
    tokens, spans, number = [], [], 0
    after = [m["role"] for m in ([{"role": ""}] + messages)]
    answers = [(m, after[i]) for i, m in enumerate(messages) if m["role"] == "assistant"]
    for text, ours in dialogue.render(messages, specs):
        ids = tokenizer.encode(text)
        if ours:
            before = answers[number][1]
            spans.append((len(tokens), len(tokens) + len(ids), kind_of(text.removesuffix("<|im_end|>"), before)))
            number += 1
        tokens += ids
    return tokens[:length], [s for s in spans if s[1] <= length]


@torch.no_grad()
def judge(model, tokenizer, device, count, length, long, seed=1, batch=8, wrong=None):
    """Right and asked, by kind of answer."""
    right, asked = collections.Counter(), collections.Counter()
    made = [encode(tokenizer, m, s, length) for m, s in held_out_dialogues(count, length, long, seed)]
    pad = tokenizer.special["<|pad|>"]
    for first in range(0, len(made), batch):
        part = made[first:first + batch]
        rows = torch.tensor([t + [pad] * (length - len(t)) for t, _ in part], device=device)
        with torch.autocast(rows.device.type, torch.bfloat16, enabled=rows.is_cuda):
            best = model(rows).argmax(-1).cpu()
        rows = rows.cpu()
        for i, (_, spans) in enumerate(part):
            for begin, end, kind in spans:
                asked[kind] += 1
                good = bool((best[i, begin - 1:end - 1] == rows[i, begin:end]).all())
                right[kind] += good
                if not good and wrong is not None:
                    said = tokenizer.decode(best[i, begin - 1:end - 1].tolist())
                    wrong.append((kind, tokenizer.decode(rows[i, max(0, begin - 40):begin].tolist()),
                                  tokenizer.decode(rows[i, begin:end].tolist()), said))
    return right, asked


def shown(right, asked):
    return "  ".join(f"{k} {right[k]}/{asked[k]} {100 * right[k] / asked[k]:.1f}%" for k in KINDS if asked[k])
