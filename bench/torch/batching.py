#!/usr/bin/env python3
"""Hit ratio of continuous batching under pressure: transformers' own allocators, and Stemma's.

Question: of the prompt tokens of a slice of an agent trace, how many need no computing when the
memory holds only a part of the slice? Both sides run the same manager, scheduler, memory and
requests; the answers must be equal.

Usage: batching.py [--trace FILE] [--requests 200] [--shares 0.2,0.3,0.5,0.8] [--at-once 4]
                   [--models full,mixed,window] [--policies lru,adaptive]
The memory must hold the longest prompt of the slice. Needs torch, transformers and the program
zstd. The trace is agent_dev.jsonl.zst in the folder STEMMA_TRACES (../shared/traces). A block of
the trace becomes a page of four tokens of a tiny model with random weights, so this runs on any
CPU.
"""

import argparse
import io
import json
import logging
import os
import pathlib
import platform
import subprocess
import time

import torch
import transformers

from stemma.torch import continuous

PAGE = 4
VOCABULARY = 64
LIMIT_TOKENS = 512  # Of a batch.


def trace(path, requests):
    """The prompts of the first requests of a trace, as tokens."""
    with subprocess.Popen(
        ["zstd", "-dc", "--long=27", str(path)], stdout=subprocess.PIPE
    ) as program:
        lines = io.TextIOWrapper(program.stdout)
        rows = [json.loads(next(lines)) for _ in range(requests)]
        program.kill()
    prompts = []
    for number, row in enumerate(rows):
        tokens = [block >> (6 * n) & 63 for block in row["hash_ids"] for n in range(PAGE)]
        prompts.append([*tokens, number % VOCABULARY])  # The last token is always computed.
    return prompts


def pages_of(prompts):
    """How many different pages there are, and how many in all."""
    pages = [tuple(one[: n + PAGE]) for one in prompts for n in range(0, len(one) - 1, PAGE)]
    return len(set(map(hash, pages))), len(pages)


def model_of(kind):
    """A tiny model: "full" attention, a "window" everywhere, or "mixed"."""
    torch.manual_seed(0)
    common = {
        "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 16,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8192,
        "pad_token_id": None, "bos_token_id": 1, "eos_token_id": None, "head_dim": 8,
    }  # fmt: skip
    if kind == "full":
        config = transformers.LlamaConfig(**common, num_hidden_layers=1)
        model = transformers.LlamaForCausalLM(config)
    elif kind == "window":
        config = transformers.MistralConfig(**common, num_hidden_layers=1, sliding_window=64)
        model = transformers.MistralForCausalLM(config)
    else:
        types = ["sliding_attention", "full_attention"]
        config = transformers.Gemma3TextConfig(
            **common, num_hidden_layers=2, sliding_window=64, layer_types=types
        )
        model = transformers.Gemma3ForCausalLM(config)
    return model.eval()


def replay(model, prompts, blocks, *, ours, at_once=4, policy=None):
    """Runs the prompts in order, `at_once` at a time. Returns answers, computed tokens, seconds."""
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    generation = transformers.GenerationConfig(do_sample=False, max_new_tokens=1, eos_token_id=-1)
    fields = transformers.ContinuousBatchingConfig.__dataclass_fields__
    size = "page_size" if "page_size" in fields else "block_size"
    batching = transformers.ContinuousBatchingConfig(
        **{size: PAGE}, num_blocks=blocks, max_batch_tokens=LIMIT_TOKENS, use_cuda_graph=False
    )
    given = {"generation": generation, "batching": batching, "policy": policy}
    attached = continuous.attach(model, **given) if ours else None
    manager = model.init_continuous_batching(
        generation_config=generation, continuous_batching_config=batching
    )
    manager.warmup()
    cache, computed = manager.batch_processor.cache, 0
    indices = cache.extend_read_and_write_indices

    def counted(request_id, past_length, query_length, *rest, **named):
        nonlocal computed
        computed += query_length
        return indices(request_id, past_length, query_length, *rest, **named)

    cache.extend_read_and_write_indices = counted
    answers, waiting, began = {}, 0, time.perf_counter()
    manager.start()
    try:
        for number, prompt in enumerate(prompts):
            manager.add_request(prompt, request_id=str(number), max_new_tokens=1)
            waiting += 1
            while waiting == at_once or (waiting and number == len(prompts) - 1):
                result = manager.get_result(timeout=300)
                if result is None or result.error:
                    raise SystemExit(f"a request failed: {result and result.error}")
                answers[int(result.request_id)] = result.generated_tokens
                waiting -= 1
    finally:
        seconds = time.perf_counter() - began
        if attached:
            manager.stop()
            cache.books.index.check_invariants()
            attached.detach()
        else:
            manager.stop()
            manager.destroy()
    return [answers[n] for n in range(len(prompts))], computed, seconds


def main():
    arguments = argparse.ArgumentParser()
    traces = pathlib.Path(os.environ.get("STEMMA_TRACES", "../shared/traces"))
    arguments.add_argument("--trace", default=traces / "agent_dev.jsonl.zst")
    arguments.add_argument("--requests", type=int, default=200)
    arguments.add_argument("--shares", default="0.2,0.3,0.5,0.8")
    arguments.add_argument("--at-once", type=int, default=4)
    arguments.add_argument("--models", default="full,mixed,window")
    arguments.add_argument("--policies", default="lru,adaptive")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    prompts = trace(given.trace, given.requests)
    distinct, pages = pages_of(prompts)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"# {platform.machine()}, {versions}, Python {platform.python_version()}")
    print(f"# {given.requests} requests, {pages} blocks, {distinct} different ones, longest prompt "
          f"{max(map(len, prompts)) // PAGE}; {given.at_once} requests at a time")  # fmt: skip
    print(f"# an infinite cache would reuse {1 - distinct / pages:.1%}")
    print("model   memory    policy    theirs    ours   (reused part of the prompts' blocks)")
    for kind in given.models.split(","):
        model = model_of(kind)
        for share in given.shares.split(","):
            blocks = round(float(share) * distinct)
            wanted, theirs, their_s = replay(
                model, prompts, blocks, ours=False, at_once=given.at_once
            )
            for policy in given.policies.split(","):
                answers, computed, seconds = replay(
                    model, prompts, blocks, ours=True, at_once=given.at_once, policy=policy
                )
                reused = [1 - (n - len(prompts)) / (pages * PAGE) for n in (theirs, computed)]
                same = "same text" if answers == wanted else "DIFFERENT TEXT"
                same += f" ({len(set(map(tuple, wanted)))} answers)"
                print(f"{kind:7} {share:>6} = {blocks:<6} {policy:9} {reused[0]:6.1%}  "
                      f"{reused[1]:6.1%}   {same}   {their_s:.0f} s, {seconds:.0f} s",
                      flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
