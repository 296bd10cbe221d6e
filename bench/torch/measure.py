#!/usr/bin/env python3
"""Time to the first token of generate(), cold and with a prefix at each level; decode beside
DynamicCache.

Questions: is a prefix on the device free but for one forward step (F)? Do host memory and a disk
cost what their bytes cost? Is decode as fast as with DynamicCache? Are keys, values and logits bit
by bit those of a DynamicCache, is the text the same, and is memory flat?

Usage: measure.py [--part ttft,equal,decode,conversations,memory] [--model llama8b|window|small]
                  [--tokens 2048,8192,32768] [--out FOLDER] [--disk FOLDER]
                  [--conversations 100] [--requests 1000]
The model has random weights. Every row goes to OUT/torch.jsonl as soon as it is there, with the
bars that it meets or misses. Exits with 1 if something is wrong, with 3 if a bar of speed was missed.
"""

import argparse
import contextlib
import gc
import json
import os
import pathlib
import platform
import shutil
import statistics
import sys
import tempfile
import time

import torch
import transformers

import stemma
import stemma.torch

GPU = torch.cuda.is_available()
SHAPES = {
    "llama8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                "num_attention_heads": 32, "num_key_value_heads": 8},
    "window": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 12,
               "num_attention_heads": 16, "num_key_value_heads": 8},
    "small": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
              "num_attention_heads": 4, "num_key_value_heads": 2},
}  # fmt: skip


class Report:
    """Rows, written as they come, and what was wrong or too slow in them."""

    def __init__(self, path, about):
        self._path = path
        self.wrong = self.missed = 0
        self.row("machine", about)

    def row(self, kind, values):
        line = json.dumps({"kind": kind, **values})
        print(line, flush=True)
        with open(self._path, "a") as file:
            file.write(line + "\n")

    def bar(self, what, value, most):
        """A speed: no more milliseconds than `most`."""
        self.missed += value > most
        self.row("bar", {"what": what, "value": round(value, 3), "most": round(most, 3),
                         "met": value <= most})  # fmt: skip

    def check(self, what, right):
        """A fact: anything else is an error."""
        self.wrong += not right
        self.row("check", {"what": what, "right": bool(right)})


def make(name, dtype):
    torch.manual_seed(0)
    common = {**SHAPES[name], "vocab_size": 32000, "max_position_embeddings": 65536,
              "eos_token_id": None, "pad_token_id": None}  # fmt: skip
    with torch.device("cuda" if GPU else "cpu"):
        if name == "window":
            config = transformers.MistralConfig(**common, sliding_window=1024, dtype=dtype)
            kind = transformers.MistralForCausalLM
        else:
            config = transformers.LlamaConfig(**common, dtype=dtype)
            kind = transformers.LlamaForCausalLM
        return kind(config).to(dtype).eval()


def synchronize():
    if GPU:
        torch.cuda.synchronize()


class FirstToken(transformers.StoppingCriteria):
    """Notes when the first token was there."""

    def __init__(self):
        self.at = None

    def __call__(self, ids, scores, **kwargs):
        if self.at is None:
            synchronize()
            self.at = time.perf_counter()
        return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)


def first_token_ms(model, ids, new=1):
    """Milliseconds to the first token, and all ids."""
    seen = FirstToken()
    synchronize()
    begin = time.perf_counter()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                         max_new_tokens=new, stopping_criteria=transformers.StoppingCriteriaList([seen]))  # fmt: skip
    synchronize()
    return (seen.at - begin) * 1e3, out


def tokens(count, seed):
    made = torch.randint(5, 31000, (1, count), generator=torch.Generator().manual_seed(seed))
    return made.cuda() if GPU else made


def forward_ms(model, ids):
    """F: one forward of one token behind all others."""
    cache = transformers.DynamicCache(config=model.config)
    times = []
    with torch.no_grad():
        model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        for _ in range(6):
            synchronize()
            begin = time.perf_counter()
            model(ids[:, -1:], past_key_values=cache, use_cache=True)
            synchronize()
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[1:])


def disk_gbs(folder):
    """What a plain read of a fresh file gives, past the page cache where that can be asked for."""
    path = pathlib.Path(folder, "plain-read")
    block = os.urandom(1 << 24)
    with open(path, "wb") as file:
        for _ in range(32):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin, got = time.perf_counter(), 0
    with open(path, "rb", buffering=0) as file:
        while part := file.read(1 << 24):
            got += len(part)
    path.unlink()
    return got / (time.perf_counter() - begin) / 1e9


def levels_at(where, folder, size):
    if where == "host":
        return [stemma.Level("host", capacity_bytes=size)]
    if where == "disk":
        return [stemma.Level("disk", capacity_bytes=size, where=folder)]
    return []


def reused_by(attached):
    """How many tokens of the first row the last call found; 0 if it ran without the pool."""
    return 0 if attached.last is None else attached.last.reused_tokens[0]


@contextlib.contextmanager
def at_level(model, where, length, folder, per_token):
    """The model with a pool that has room for two prompts, and one level below it."""
    below = tempfile.mkdtemp(dir=folder)
    size = int(per_token * length * 2) + (64 << 20)
    try:
        with stemma.torch.attach(
            model, tokens=length * 2 + 4096, model_id=b"bench",
            levels=levels_at(where, below, size), queue_bytes=size,
            transfer_bytes=1 << 30 if GPU else 64 << 20, query_s=5.0, load_s=60.0,
        ) as attached:  # fmt: skip
            yield attached
    finally:
        shutil.rmtree(below, ignore_errors=True)
        gc.collect()


def bytes_of_a_token(model):
    return sum(group.block_bytes for group in stemma.torch.probe(model).groups(16)) / 16


def ttft(model, lengths, folder, report):
    per_token = bytes_of_a_token(model)
    disk = disk_gbs(folder)
    for length in lengths:
        ids = tokens(length, length)
        first_token_ms(model, ids)
        f_ms, size = forward_ms(model, ids), per_token * length
        row = {"tokens": length, "bytes": int(size), "F_ms": f_ms, "disk_plain_read_gbs": disk}
        cold = [first_token_ms(model, ids) for _ in range(2)]
        row["plain_cold_ms"] = min(ms for ms, _ in cold)
        answer = cold[0][1]
        report.row("cold", row)
        for where in ("device", "host", "disk"):
            with at_level(model, where, length, folder, per_token) as attached:
                times, reused, same = [], [], True
                row = {"tokens": length, "where": where}
                row["store_ms"] = first_token_ms(model, ids)[0]
                attached.pool.flush(120)
                for _ in range(5):
                    if where != "device":
                        attached.pool.clear()
                    ms, out = first_token_ms(model, ids)
                    times.append(ms)
                    reused.append(reused_by(attached))
                    same = same and torch.equal(out, answer)
                row["ms"] = statistics.median(times[1:])
                row["reused"] = min(reused)
                row["passed"] = dict(attached.passed)
            report.row("ttft", row)
            name = f"{where}, {length} tokens"
            report.check(f"the same token: {name}", same)
            report.check(f"all but the last blocks were found: {name}", row["reused"] > length - 33)
            report.bar(f"TTFT, ms: {name}", row["ms"], {
                "device": f_ms + 5,
                "host": 1.1 * max(f_ms, size / 50e6) + 5,
                "disk": f_ms + size / (0.9 * disk * 1e6),
            }[where])  # fmt: skip


def equal(model, lengths, folder, report):
    """Keys, values and logits beside a DynamicCache that was cropped by hand to the same depth."""
    per_token = bytes_of_a_token(model)
    for length in lengths:
        ids = tokens(length, length)
        for where in ("device", "host", "disk"):
            with at_level(model, where, length, folder, per_token) as attached, torch.no_grad():
                pool = attached.pool
                cache = pool.cache_for(ids)
                model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                cache.finish(ids)
                pool.flush(120)
                if where != "device":
                    pool.clear()
                ours = pool.cache_for(ids)
                depth = ours.depth
                mine = model(ids[:, depth:], past_key_values=ours, use_cache=True).logits
                theirs = transformers.DynamicCache(config=model.config)
                model(ids, past_key_values=theirs, use_cache=True, logits_to_keep=1)
                name = f"{where}, {length} tokens, depth {depth}"
                try:
                    theirs.crop(depth - length)
                except (ValueError, NotImplementedError, RuntimeError) as error:
                    report.row("skipped", {"what": f"bit-equal: {name}", "why": str(error)})
                    ours.close()
                    continue
                wanted = model(ids[:, depth:], past_key_values=theirs, use_cache=True).logits
                same = all(
                    torch.equal(a.keys, b.keys) and torch.equal(a.values, b.values)
                    for a, b in zip(ours.layers, theirs.layers)
                )
                report.check(f"something was found: {name}", depth > 0)
                report.check(f"keys and values are bit-equal: {name}", same)
                report.check(f"logits are bit-equal: {name}", torch.equal(mine, wanted))
                ours.close()
                del theirs, mine, wanted


def decode(model, length, report):
    """Milliseconds a token, with and without the pool, taken in turns."""
    ids, new = tokens(length, 1), 65
    times = {"dynamic_cache": [], "pool": []}
    with stemma.torch.attach(model, tokens=length * 2 + 4096, model_id=b"bench") as attached:
        for _ in range(8):
            for name, generate in (
                ("dynamic_cache", lambda *a, **k: type(model).generate(model, *a, **k)),
                ("pool", model.generate),
            ):
                times[name].append(token_ms(generate, ids, new))
        assert not attached.passed, attached.passed
    found = {name: statistics.median(one[1:]) for name, one in times.items()}
    found["ratio"] = found["pool"] / found["dynamic_cache"]
    report.row("decode_ms_a_token", {"context": length, **found})
    report.bar(f"decode, beside DynamicCache (1 % is noise): {length}", found["ratio"], 1.01)


def token_ms(generate, ids, new):
    """Milliseconds a token after the first one; what follows the last one does not count."""
    seen = [FirstToken(), LastToken(ids.shape[1] + new)]
    generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new,
             stopping_criteria=transformers.StoppingCriteriaList(seen))  # fmt: skip
    return (seen[1].at - seen[0].at) * 1e3 / (new - 1)


class LastToken(FirstToken):
    """Notes when there were so many columns."""

    def __init__(self, columns):
        super().__init__()
        self.columns = columns

    def __call__(self, ids, scores, **kwargs):
        if ids.shape[1] < self.columns:
            return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)
        return super().__call__(ids, scores, **kwargs)


def conversations(count, report):
    """Greedy text in fp32 with and without the pool."""
    model = make("small", torch.float32)
    same = 0
    with stemma.torch.attach(model, tokens=65536) as attached:
        for n in range(count):
            text = tokens(100, 7)
            right = True
            for turn in range(3):
                text = torch.cat((text, tokens(20 + n % 7, 1000 * turn + n)), dim=1)
                mask = torch.ones_like(text)
                options = {"attention_mask": mask, "do_sample": False, "max_new_tokens": 16}
                wanted = type(model).generate(model, text, **options)
                text = model.generate(text, **options)
                right = right and torch.equal(wanted, text)
            same += right
        report.row("conversations", {"count": count, "same_text": same, **attached.pool.counts()})
    report.check("the text of every conversation is the same", same == count)


def device_memory(pool):
    """Bytes of tensors, bytes that torch has taken, and bytes that the device has given away."""
    if not GPU:
        return [pool.memory_bytes] * 3
    free, total = torch.cuda.mem_get_info()
    return [torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), total - free]


def flat_memory(requests, report):
    """Device memory over many requests in a pool that evicts all the time."""
    model = make("small", torch.bfloat16 if GPU else torch.float32)
    seen = []
    with stemma.torch.attach(model, tokens=4096) as attached:
        for n in range(requests):
            first_token_ms(model, tokens(500 + n % 300, n // 2), 4)
            if n in (requests // 3, requests - 1):
                attached.last = None
                gc.collect()
                seen.append(device_memory(attached.pool))
        evicted = attached.pool.cache.stats().evicted_blocks
        report.row("memory", {"requests": requests, "evicted_blocks": evicted,
                              "names": ["allocated", "reserved", "given by the device"],
                              "early": seen[0], "late": seen[-1], **attached.pool.counts()})
    report.check("blocks were evicted", evicted > 0)
    for name, early, late in zip(("allocated", "reserved", "given by the device"), *seen):
        report.check(f"flat: memory {name}", late <= early + (2 << 20))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="ttft,equal,decode,conversations,memory")
    parser.add_argument("--model", default="llama8b" if GPU else "small", choices=SHAPES)
    parser.add_argument("--tokens", default="2048,8192,32768" if GPU else "512,2048")
    parser.add_argument("--out", default=".")
    parser.add_argument("--disk", default=None)
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--requests", type=int, default=1000)
    return parser.parse_args()


def main():
    given = parse()
    if GPU and not stemma._mover.has_cuda():
        sys.exit("bench/torch: the libraries of Stemma were built without CUDA; give those that "
                 "bench/mover/prepare made, as STEMMA_LIBRARY_PATH")  # fmt: skip
    transformers.utils.logging.set_verbosity_error()
    machine = torch.cuda.get_device_name() if GPU else platform.processor() or platform.machine()
    report = Report(
        pathlib.Path(given.out, "torch.jsonl"),
        {"machine": machine, "cores": os.cpu_count(), "model": given.model, "part": given.part,
         "torch": torch.__version__, "cuda": torch.version.cuda,
         "transformers": transformers.__version__, "date": time.strftime("%Y-%m-%d")},
    )  # fmt: skip
    parts = given.part.split(",")
    folder = tempfile.mkdtemp(dir=given.disk)
    lengths = [int(n) for n in given.tokens.split(",")]
    try:
        if {"ttft", "equal", "decode"} & set(parts):
            model = make(given.model, torch.bfloat16 if GPU else torch.float32)
            if "ttft" in parts:
                ttft(model, lengths, folder, report)
            if "equal" in parts:
                equal(model, lengths, folder, report)
            for length in lengths if "decode" in parts else ():
                decode(model, length, report)
            del model
            gc.collect()
        if "conversations" in parts:
            conversations(given.conversations, report)
        if "memory" in parts:
            flat_memory(given.requests, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"wrong: {report.wrong}, bars missed: {report.missed}")
    sys.exit(1 if report.wrong else 3 if report.missed else 0)


if __name__ == "__main__":
    main()
