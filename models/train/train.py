#!/usr/bin/env python3
"""Trains the models of models/, on one GPU, and writes them as GGUF files.

    train.py --out DIR [--models llama,window,hybrid] [--seconds 170,70,70 | --steps 4000,1800,1500]

With --steps a training can be repeated: the data is the same, and the weights differ only by how a GPU rounds. With
--seconds the learning rate follows the clock; the number of steps that came out is printed and stored in the file.
Without a GPU only the tiny shapes are worth trying: --models tiny --device cpu --length 512.
"""
import argparse
import collections
import os
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

import corpus
import export
import judge
import margin
from model import SHAPES, Model
from optimiser import Optimiser
from tokenizer import Tokenizer

SEED = 7
WARMUP_STEPS = 40
HOLD = 0.45  # Share of the training with constant rates; then they fall linearly.
EARLY = 0.25  # Share of the training in which most rows are short.
# Learning rates of matrices. Queries and keys that are not normalised need small steps.
MATRIX_RATES = {"gemma3": 0.02, "llama": 0.01, "granitehybrid": 0.01}


def arguments():
    parser = argparse.ArgumentParser(description="trains the models of models/")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--models", default="llama,window,hybrid")
    parser.add_argument("--seconds", default="", help="of training each, without compiling")
    parser.add_argument("--steps", default="")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--length", type=int, default=3072)
    parser.add_argument("--short", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=49152, help="in a step")
    parser.add_argument("--pool", type=int, default=100_000_000, help="tokens of different data")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--matrix-rate", type=float, default=0.0, help="0: that of the architecture")
    parser.add_argument("--other-rate", type=float, default=0.003)
    parser.add_argument("--judged", type=int, default=48, help="held-out dialogues of each length at the end")
    parser.add_argument("--no-compile", action="store_true")
    return parser.parse_args()


class Pace:
    """Where in a training we are, from 0 to 1, by steps or by the clock."""

    def __init__(self, steps, seconds):
        self.steps, self.seconds = steps, seconds
        self.begin = None

    def start(self):
        self.begin = time.monotonic()

    def elapsed(self):
        return time.monotonic() - self.begin if self.begin else 0.0

    def share(self, step):
        return step / self.steps if self.steps else self.elapsed() / self.seconds


def rate_share(progress, step):
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    fall = 1.0 if progress < HOLD else max(0.0, (1 - progress) / (1 - HOLD))
    return warm * max(fall, 0.005)


class Batches:
    """Long and short rows by turns; mostly short ones at first."""

    def __init__(self, pools, tokens, device):
        self.pools, self.tokens, self.device = pools, tokens, device
        self.taken = dict.fromkeys(pools, 0)
        self.debt = 0.0

    def next(self, progress):
        self.debt += 0.3 if progress < EARLY else 0.8
        name = "long" if self.debt >= 1 else "short"
        if name == "long":
            self.debt -= 1
        return self.take(name)

    def take(self, name):
        pool = self.pools[name]
        count = max(1, self.tokens // pool.length)
        tokens, weights = pool.take(self.taken[name], count)
        self.taken[name] += count
        tokens, weights = torch.from_numpy(tokens.astype("int64")), torch.from_numpy(weights)
        if self.device == "cuda":
            tokens, weights = tokens.pin_memory(), weights.pin_memory()
        return tokens.to(self.device, non_blocking=True), weights.to(self.device, non_blocking=True)


def loss_of(hidden, output, targets, weights):
    logits = F.linear(hidden, output.to(hidden.dtype)).float()
    each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    weights = weights.flatten().float() / 255
    ours = weights > 0.9
    # The second is the loss on the model's own words, for the log.
    return (each * weights).sum() / weights.sum(), (each * ours).sum().detach() / ours.sum()


class Training:
    def __init__(self, name, options, corpus_, tokenizer, steps, seconds):
        torch.manual_seed(SEED)
        self.name, self.options, self.tokenizer = name, options, tokenizer
        self.model = Model(SHAPES[name]).to(options.device)
        rate = options.matrix_rate or MATRIX_RATES[self.model.shape.arch]
        self.optimiser = Optimiser(self.model, rate, options.other_rate)
        self.batches = Batches(corpus_.pools, options.tokens, options.device)
        self.pace = Pace(steps, seconds)
        self.loss = loss_of
        if options.device == "cuda" and not options.no_compile:
            torch._dynamo.config.cache_size_limit = 64
            for block in self.model.blocks:
                block.compile(dynamic=False)
            self.loss = torch.compile(loss_of, dynamic=False)
        self.step = 0

    def descend(self, tokens, weights, share):
        with torch.autocast(self.options.device, torch.bfloat16, enabled=self.options.device == "cuda"):
            hidden = self.model.hidden(tokens[:, :-1].contiguous()).to(
                torch.bfloat16 if self.options.device == "cuda" else torch.float32)
            loss, ours = self.loss(hidden, self.model.embedding.weight, tokens[:, 1:].contiguous(),
                                   weights[:, 1:].contiguous())
        loss.backward()
        self.optimiser.step(share)
        return ours

    def warm_up(self):
        """Compiles for both lengths, at rates too small to matter."""
        begin = time.monotonic()
        try:
            for name in ("long", "short") * 2:
                self.descend(*self.batches.take(name), 1e-6)
        except Exception as error:  # A compiler error; without it training is only slower.
            if self.loss is loss_of:
                raise
            print(f"{self.name}: going on without the compiler: {type(error).__name__}: {error}"[:2000], flush=True)
            self.loss = loss_of
            for block in self.model.blocks:
                block._compiled_call_impl = None
            self.model.zero_grad(set_to_none=True)
            for name in ("long", "short"):
                self.descend(*self.batches.take(name), 1e-6)
        if self.options.device == "cuda":
            torch.cuda.synchronize()
        print(f"{self.name}: compiled in {time.monotonic() - begin:.0f} s", flush=True)

    def run(self):
        self.warm_up()
        self.pace.start()
        last, sums, shown_at = time.monotonic(), [], 0
        while (progress := self.pace.share(self.step)) < 1:
            ours = self.descend(*self.batches.next(progress), rate_share(progress, self.step))
            self.step += 1
            sums.append(ours)
            if self.step % 25 == 0:
                loss = torch.stack(sums).mean().item()  # Also keeps us from running far ahead of the GPU.
                sums = []
                if self.step - shown_at >= 200 or progress > 0.98 and self.step > shown_at + 50:
                    rate = (self.step - shown_at) * self.options.tokens / (time.monotonic() - last)
                    memory = torch.cuda.max_memory_allocated() >> 20 if self.options.device == "cuda" else 0
                    print(f"{self.name}: step {self.step} {100 * progress:.0f}% loss {loss:.4f} "
                          f"{rate / 1e6:.3f} Mtok/s {memory} MiB {self.pace.elapsed():.0f} s", flush=True)
                    last, shown_at = time.monotonic(), self.step
                if self.step % 1000 == 0:
                    self.judge(16, "so far")
        if self.options.device == "cuda":
            torch.cuda.synchronize()
        self.seconds = self.pace.elapsed()

    def judge(self, count, when):
        lines, self.right, self.asked = [], collections.Counter(), collections.Counter()
        self.model.eval()
        for name, long in (("long", True), ("short", False)):
            wrong = []
            length = self.options.length if long else self.options.short
            with torch.compiler.set_stance("force_eager"):  # Other shapes; compiling would take longer.
                right, asked = judge.judge(self.model, self.tokenizer, self.options.device, count, length, long,
                                           wrong=wrong)
            lines.append(f"{self.name} {when} {name}: {judge.shown(right, asked)}")
            self.right += right
            self.asked += asked
            self.wrong = wrong if long else self.wrong + wrong
        self.model.train()
        print("\n".join(lines), flush=True)
        return lines


def main():
    options = arguments()
    torch.set_float32_matmul_precision("high")
    names = options.models.split(",")
    numbers = [int(s) for s in (options.steps or options.seconds).split(",")]
    assert len(numbers) == len(names), "as many numbers as models"
    tokenizer = Tokenizer.load()
    options.out.mkdir(parents=True, exist_ok=True)
    share = options.pool // 5
    pools = [corpus.Pool("long", max(16, 4 * share // options.length), options.length, True, SEED),
             corpus.Pool("short", max(96, share // options.short), options.short, False, SEED)]
    data = corpus.Corpus(tokenizer, pools, options.workers)
    begin, table, missed = time.monotonic(), [], []
    try:
        for name, number in zip(names, numbers):
            steps, seconds = (number, 0) if options.steps else (0, number)
            training = Training(name, options, data, tokenizer, steps, seconds)
            training.run()
            print(f"data so far: {data.tokens() / 1e6:.0f} M tokens", flush=True)
            path = options.out / f"{name}.gguf"
            size = export.write(training.model, tokenizer, path, f"stemma {name}", training.step)
            lines = training.judge(options.judged, "done")
            with open(options.out / f"{name}-wrong.txt", "w", encoding="utf-8") as file:
                for kind, before, wanted, said in training.wrong[:200]:
                    file.write(f"[{kind}] ...{before!r}\n  wanted {wanted!r}\n  said   {said!r}\n")
            table.append(f"{name}: {training.model.parameter_count() / 1e6:.1f} M parameters, {training.step} steps, "
                         f"{training.step * options.tokens / 1e6:.0f} M tokens, {training.seconds:.0f} s, "
                         f"{size / 2**20:.1f} MiB")
            table += lines
            missed += margin.below_shipped(name, training.right, training.asked)
            del training
    finally:
        data.close()
    summary = "\n".join([f"all in {time.monotonic() - begin:.0f} s", *table])
    (options.out / f"{'-'.join(names)}.txt").write_text(summary + "\n")
    print("\n" + summary, flush=True)
    sys.exit("train: " + "; ".join(missed) if missed else 0)


if __name__ == "__main__":
    main()
