#!/usr/bin/env python3
"""Compares a GGUF file in `stemma serve` with the same weights in PyTorch.

    check_export.py --program build/stemma --shape llama models/llama.gguf

Tokens of random dialogues, their text by the chat template, log probabilities and greedy answers. PyTorch computes
in fp32 from the numbers that the file has; the server quantises activations, so the two differ a little.
"""
import argparse
import random
import sys

import torch

import dialogue
import evaluate
import export
import judge
from model import SHAPES, Model
from server import Server
from tokenizer import Tokenizer
from words import Words

MEAN_APART = 0.02  # Log probabilities; the server rounds activations to q8_0.
MOST_APART = 0.25
ODD_TEXTS = ("", " ", "a  b", "  two  spaces ", "line\n\nline\n", "tab\there", "caf\u00e9 na\u00efve \u4f60\u597d \U0001f600",
             "don't they'll I'm", "12.50 euros, 7:05!", "x   12", "<tool_call>\n{}\n</tool_call>", "{\"a\": [1, 2]}",
             "___snake_case__ CamelCase", "\u00b2\u00bd", "a\r\nb", "end   ")


def check_tokens(server, tokenizer, texts):
    bad = 0
    for text in texts:
        theirs = server.call("/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]
        ours = tokenizer.encode(text)
        if theirs != ours:
            bad += 1
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
            print(f"  tokens differ: {text[:60]!r} at {at}: ours {[tokenizer.tokens[i] for i in ours[at:at + 6]]} "
                  f"theirs {[tokenizer.tokens[i] for i in theirs[at:at + 6]]}")
    print(f"tokens: {len(texts) - bad} of {len(texts)} texts are equal")
    return bad


def check_template(server, talks):
    bad, refused = 0, 0
    for messages, specs in talks:
        body = {"messages": evaluate.as_clients_send(messages), "add_generation_prompt": False}
        if specs:
            body["tools"] = specs
        try:
            theirs = server.call("/apply-template", body)["prompt"]
        except RuntimeError as error:
            if "'tools'" not in str(error):
                raise
            refused += 1  # A server without tools.
            continue
        ours = "".join(t for t, _ in dialogue.render(messages, specs))
        if not (ours == theirs or ours + "<|im_start|>assistant\n" == theirs):
            bad += 1
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
            print(f"  texts differ at {at}: ours {ours[at - 20:at + 40]!r} theirs {theirs[at - 20:at + 40]!r}")
    print(f"template: {len(talks) - bad - refused} of {len(talks)} dialogues are equal, {refused} with tools refused")
    return bad


@torch.no_grad()
def check_logits(server, model, tokenizer, prompts):
    """The log probability of every token of some prompts."""
    worst, total, count = 0.0, 0.0, 0
    for prompt in prompts:
        answer = server.call("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, "echo": True,
                                                 "logprobs": 1, "cache_prompt": False})
        ids = tokenizer.encode(prompt)
        theirs = torch.tensor(answer["choices"][0]["logprobs"]["token_logprobs"][1:len(ids)])
        ours = model(torch.tensor([ids]))[0, :-1].log_softmax(-1)
        ours = ours.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        apart = (ours - theirs).abs()
        worst, total, count = max(worst, apart.max().item()), total + apart.sum().item(), count + len(apart)
    print(f"log probabilities: {total / count:.5f} apart on average, {worst:.4f} at most, over {count} tokens")
    return total / count > MEAN_APART


@torch.no_grad()
def check_answers(server, model, tokenizer, prompts, tokens=24):
    """Greedy answers are equal, up to the first token that rounding could have decided."""
    bad = 0
    for prompt in prompts:
        answer = server.call("/v1/completions", {"prompt": prompt, "max_tokens": tokens, "temperature": 0,
                                                 "cache_prompt": False})
        said = tokenizer.encode(answer["choices"][0]["text"])
        ids = tokenizer.encode(prompt)
        logits = model(torch.tensor([ids + said]))[0, len(ids) - 1:].log_softmax(-1)
        for i, token in enumerate(said):
            margin = (logits[i].max() - logits[i][token]).item()
            if margin > 0:
                bad += margin > MOST_APART
                print(f"  answers part at token {i}, where ours is {margin:.3f} better")
                break
    print(f"answers: {len(prompts) - bad} of {len(prompts)} agree")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--shape", required=True, choices=SHAPES)
    parser.add_argument("--program", required=True)
    parser.add_argument("--prompts", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = Tokenizer.load()
    model = export.read(options.file, Model(SHAPES[options.shape]).eval())
    words = Words(random.Random(3), evaluating=True)
    texts = list(ODD_TEXTS)
    talks = judge.held_out_dialogues(20, 600, False, 5) + judge.held_out_dialogues(3, 1500, True, 5)
    texts += ["".join(t for t, _ in dialogue.render(*talk)) for talk in talks]
    texts += [words.phrase() for _ in range(50)]
    prompts = []
    for messages, specs in talks[-options.prompts:]:
        last = max(i for i, m in enumerate(messages) if m["role"] == "user")
        text = "".join(t for t, _ in dialogue.render(messages[:last + 1], specs))
        prompts.append(text + "<|im_start|>assistant\n")
    with Server(program=options.program, model=options.file,
                settings=("--context", 4096, "--sequences", 1, "--threads", 1)) as server:
        bad = check_tokens(server, tokenizer, texts)
        bad += check_template(server, talks)
        bad += check_logits(server, model, tokenizer, prompts)
        bad += check_answers(server, model, tokenizer, prompts)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
