#!/usr/bin/env python3
"""Asks a model in `stemma serve` what it never saw, and whether reused state changes its answers. Needs no PyTorch.

    evaluate.py --program build/stemma --model models/llama.gguf [--parts facts,tools,states,planted] [--sheets 20]
    evaluate.py --url http://127.0.0.1:8080 --parts facts,tools

  facts    questions about 2,000 tokens of facts; names, values and half of the phrasings were held out of training
  tools    calls of tools, by name and arguments, and what is said of their results
  states   the same answers cold, warm, forked, from memory, after eviction, and, by another process, from a disk, a
           shared directory and Redis (which must be installed, or --redis)
  planted  state that was computed from other facts is put under a prompt: the score must collapse

An answer is right if it is word for word the one expected. Exit status: 0 if all bars are met, 1 if not.
"""
import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile

import dialogue
import plant
import tools
import worlds
from server import Server
from tokenizer import Tokenizer
from words import Words

FACT_TOKENS = (1900, 2200)
ANSWER_TOKENS = 64
UNKNOWN_SHARE = 0.15
PER_SHEET = 5  # Questions about a sheet, for states.
BAR = 0.95
MOSTLY = 0.9  # This share of the questions must have found stored state.
COLLAPSE = 0.3  # A planted state must bring the score below this.
LOADED = {"segments", "state", "checkpoint"}  # Steps that bring saved state back.
# A slow machine must not make a disk or a Redis too late to be used.
DEFAULTS = ("--context", 16384, "--sequences", 4, "--tier-wait-ms", 60000)


class Question:
    """A prompt, the answer to it, and of which kind the question is."""

    def __init__(self, messages, answer, kind):
        self.messages, self.answer, self.kind = messages, answer, kind


def sheet_of(words, tokenizer, tokens):
    """Facts of about so many tokens."""
    low, high = tokens
    characters = int(low * 3.4)
    while True:
        sheet = worlds.draw_sheet(words, characters)
        count = len(tokenizer.encode(sheet.text))
        if low <= count <= high:
            return sheet
        characters = max(80, int(characters * (low + high) / 2 / count))


def fact_questions(tokenizer, sheets, each, seed, tokens=FACT_TOKENS):
    out = []
    for i in range(sheets):
        words = Words(random.Random(f"facts {seed} {i}"), evaluating=True)
        sheet = sheet_of(words, tokenizer, tokens)
        head = words.choice(dialogue.PREAMBLES).format(n=words.person(), p="library", c=words.city())
        system = dialogue.message("system", head + "\n\n" + sheet.text)
        for _ in range(each):
            if words.random() < UNKNOWN_SHARE:
                asked, answer, kind = sheet.unknown_question(words), worlds.UNKNOWN, "not in notes"
            else:
                fact = words.choice(sheet.facts)
                asked, answer, kind = sheet.question(words, fact), fact.answer(), "fact"
            out.append(Question([system, dialogue.message("user", asked)], answer, kind))
    return out


def chat(server, messages, **more):
    """The text of a greedy answer, and the server's report of what it reused."""
    answer = server.call("/v1/chat/completions", {"messages": messages, "max_tokens": ANSWER_TOKENS,
                                                  "temperature": 0, **more})
    return answer["choices"][0]["message"].get("content") or "", answer["stemma"]


class Score:
    """Counts what was right, by kind, and keeps some of what was wrong."""

    def __init__(self):
        self.right, self.asked, self.wrong = {}, {}, []

    def add(self, kind, good, wanted, said):
        self.asked[kind] = self.asked.get(kind, 0) + 1
        self.right[kind] = self.right.get(kind, 0) + good
        if not good:
            self.wrong.append((kind, wanted, said))

    def share(self):
        return sum(self.right.values()) / max(1, sum(self.asked.values()))

    def show(self, name, most=5):
        parts = [f"{k} {self.right[k]}/{self.asked[k]}" for k in self.asked]
        print(f"{name}: {100 * self.share():.1f} % right  ({', '.join(parts)})", flush=True)
        for kind, wanted, said in self.wrong[:most]:
            print(f"    {kind}: wanted {wanted!r}\n    {' ' * len(kind)}  said   {said!r}")


def evaluate_facts(server, tokenizer, options):
    score = Score()
    for question in fact_questions(tokenizer, options.sheets, options.questions, options.seed):
        said, _ = chat(server, question.messages)
        score.add(question.kind, said == question.answer, question.answer, said)
    score.show("facts")
    return score.share() >= BAR


def next_step(server, messages, specs):
    """(calls, text) of the model's next answer; calls as (name, arguments)."""
    answer = server.call("/v1/chat/completions", {
        "messages": as_clients_send(messages), "tools": specs, "max_tokens": 2 * ANSWER_TOKENS,
        "temperature": 0})["choices"][0]["message"]
    calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in answer.get("tool_calls") or ()]
    return calls, answer.get("content") or ""


def as_clients_send(messages):
    """Arguments as text, with ids."""
    out, number, waiting = [], 0, []
    for said in messages:
        said = dict(said)
        if "tool_calls" in said:
            calls = []
            for call in said["tool_calls"]:
                made = call["function"]
                calls.append({"type": "function", "id": f"call{number}", "function": {
                    "name": made["name"], "arguments": tools.dump(made["arguments"])}})
                waiting.append(f"call{number}")
                number += 1
            said["tool_calls"] = calls
        if said["role"] == "tool":
            said["tool_call_id"] = waiting.pop(0)
        out.append(said)
    return out


def evaluate_tools(server, tokenizer, options):
    """Each task from its request to its last answer; a step is right if it is the expected one."""
    score = Score()
    for i in range(options.tasks):
        words = Words(random.Random(f"tools {options.seed} {i}"), evaluating=True)
        sheet = sheet_of(words, tokenizer, (200, 900)) if words.random() < 0.5 else None
        talk = dialogue.Dialogue(words, with_tools=True)
        if sheet:
            talk.messages = [dialogue.message("system", sheet.text)]
        task = talk.toolbox.task()
        messages = talk.messages + [dialogue.message("user", task.request)]
        for step in task.steps:
            calls, text = next_step(server, messages, talk.specs)
            if step.calls:
                wanted = [(c.name, c.arguments) for c in step.calls]
                score.add("call", calls == wanted, wanted, calls or text)
                messages.append(dialogue.call_message(step.calls))
                messages += [dialogue.message("tool", c.result) for c in step.calls]
            else:
                score.add("after call", text == step.text and not calls, step.text, calls or text)
    score.show("tools")
    calls = score.right.get("call", 0) / max(1, score.asked.get("call", 0))
    return calls >= BAR


def ask_all(server, questions, at_once=1, **more):
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda q: chat(server, q.messages, **more), questions))


def report(name, questions, cold, answers, steps):
    """One line of the table of states. Whether all answers are those of a cold start, and reuse took place."""
    same = sum(said == first for (said, _), first in zip(answers, cold))
    right = sum(said == q.answer for (said, _), q in zip(answers, questions))
    reused = sum(ours["reused_tokens"] for _, ours in answers)
    seen = sorted({step for _, ours in answers for step in ours["steps"]})
    hit = sum(bool(set(ours["steps"]) & steps) for _, ours in answers) if steps else len(answers)
    print(f"  {name:22}{same:4}/{len(cold)} as cold {right:4}/{len(cold)} right {reused:8} tokens reused  "
          f"{'+'.join(seen) or '-'}", flush=True)
    return same == len(cold) and hit >= len(cold) * 0.75


def warm_systems(server, questions):
    for system in {q.messages[0]["content"]: q.messages[0] for q in questions}.values():
        server.call("/cache/warm", {"messages": [system]})


def evaluate_states(options, tokenizer):
    questions = fact_questions(tokenizer, options.state_sheets, PER_SHEET, options.seed + 1)
    live = {"stay", "trim", "fork"}
    print("states:")
    with start(options) as server:
        cold = [said for said, _ in ask_all(server, questions, cache_prompt=False)]
        good = report("cold", questions, cold, [(c, {"reused_tokens": 0, "steps": {}}) for c in cold], set())
        ask_all(server, questions)
        good &= report("warm", questions, cold, ask_all(server, questions), live | LOADED)
    with start(options) as server:
        warm_systems(server, questions)
        good &= report("forked, 4 at once", questions, cold, ask_all(server, questions, at_once=4), live | LOADED)
    with start(options, "--reuse", "saved") as server:
        ask_all(server, questions)
        server.call("/cache/save", {})
        good &= report("restored from memory", questions, cold, ask_all(server, questions), LOADED)
    # Sheets in turn, in a context and a memory that hold one or two of them.
    order = sorted(range(len(questions)), key=lambda i: (i % PER_SHEET, i))
    turns = [questions[i] for i in order]
    with start(options, "--saved-bytes", "8MiB", "--sequences", 2, "--context", 6144) as server:
        ask_all(server, turns)
        good &= report("after eviction", turns, [cold[i] for i in order], ask_all(server, turns), set())
        evicted = server.counter("stemma_evictions_total")
        print(f"  {evicted:.0f} evictions")
        good &= evicted > 0
    with tempfile.TemporaryDirectory() as folder, redis(options) as url:
        shared = pathlib.Path(folder) / "shared"
        shared.mkdir()
        for name, flag, place in (("disk", "--disk", folder + "/disk"), ("shared directory", "--shared-dir", shared),
                                  ("Redis", "--redis", url)):
            with start(options, flag, place) as server:
                ask_all(server, questions)
                server.call("/cache/save", {})
            with start(options, flag, place) as server:
                first = [q for i, q in enumerate(questions) if i % PER_SHEET == 0]
                answers = ask_all(server, first)
                good &= report(f"{name}, a new process", first, cold[::PER_SHEET], answers, LOADED)
    return good


@contextlib.contextmanager
def redis(options):
    """The URL of a Redis: the one that was named, or one on loopback for as long as this lasts."""
    if options.redis:
        yield options.redis
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--maxmemory",
                               "1gb", "--maxmemory-policy", "allkeys-lru"], stdout=subprocess.PIPE, text=True)
    try:
        if not any("Ready to accept connections" in line for line in server.stdout):
            raise RuntimeError("redis-server did not start")
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def evaluate_planted(options, tokenizer):
    """State of a model that reads other names and numbers goes to disk; the real one takes it for its own."""
    tokens = (options.planted_tokens, options.planted_tokens + 300)
    questions = [q for q in fact_questions(tokenizer, options.state_sheets * 2, 4, options.seed + 2, tokens)
                 if q.kind == "fact"]
    shares = []
    for name, planted in (("its own state", False), ("planted state", True)):
        with tempfile.TemporaryDirectory() as folder:
            model = options.model
            if planted:
                model = pathlib.Path(folder) / "planted.gguf"
                plant.write(options.model, model, tokenizer)
            disk = pathlib.Path(folder) / "disk"
            with start(options, "--disk", disk, "--model-id", "the same", model=model) as server:
                warm_systems(server, questions)
                server.call("/cache/save", {})
            score, loaded = Score(), 0
            with start(options, "--disk", disk, "--model-id", "the same") as server:
                for question in questions:
                    said, ours = chat(server, question.messages)
                    loaded += ours["reused_tokens"] > 0
                    if not ours["reused_tokens"]:
                        print(f"    nothing reused: {ours}")
                    score.add(question.kind, said == question.answer, question.answer, said)
            score.show(f"planted: {name}, reused by {loaded} of {len(questions)}", most=3 if planted else 1)
            shares.append(score.share() if loaded >= MOSTLY * len(questions) else None)
    return None not in shares and shares[0] >= BAR and shares[1] <= COLLAPSE


def start(options, *more, model=None):
    return Server(program=options.program, model=model or options.model, settings=(*DEFAULTS, "--threads", options.threads, *more))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", help="the stemma program")
    parser.add_argument("--model", help="a GGUF file")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--redis", help="for states: the URL of a Redis or Valkey; without it one is started")
    parser.add_argument("--parts", default="facts,tools,states,planted")
    parser.add_argument("--sheets", type=int, default=20, help="for facts")
    parser.add_argument("--questions", type=int, default=10, help="a sheet")
    parser.add_argument("--tasks", type=int, default=300, help="for tools")
    parser.add_argument("--state-sheets", type=int, default=4)
    parser.add_argument("--planted-tokens", type=int, default=FACT_TOKENS[0], help="of facts, for planted")
    parser.add_argument("--threads", type=int, default=1, help="that compute")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    parts = options.parts.split(",")
    if not options.url and not (options.program and options.model):
        parser.error("--program and --model, or --url")
    if options.url and set(parts) - {"facts", "tools"}:
        parser.error("states and planted start servers of their own: --program and --model")
    tokenizer, good = Tokenizer.load(), True
    if set(parts) & {"facts", "tools"}:
        with (Server(url=options.url) if options.url else start(options)) as server:
            if "facts" in parts:
                good &= evaluate_facts(server, tokenizer, options)
            if "tools" in parts:
                good &= evaluate_tools(server, tokenizer, options)
    if "states" in parts:
        good &= evaluate_states(options, tokenizer)
    if "planted" in parts:
        good &= evaluate_planted(options, tokenizer)
    print("evaluation: all bars are met" if good else "evaluation: a bar is missed", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
