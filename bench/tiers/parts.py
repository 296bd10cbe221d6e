# The measurements. Each part returns lines (what was done, reused, possible, bar) for the table.
import collections
import random
import threading
import time

from servers import ServerFailed

from talk import Conversation, text_of

TURNS = 8
SYSTEM_TOKENS = 624
HEAD_TOKENS = 9  # Of the template, before the system prompt: two tokens and "system" with its newline.
MIB = 1 << 20

Line = collections.namedtuple("Line", "name reused possible bar remark")


def restart(start, place, turns=TURNS, others=0):
    """A server is killed and another started before every turn of a conversation.

    With `others`, each server is first asked that many other prompts, so that its memory is full. Returns
    (reused, possible, bytes that the last server had saved, evictions from its memory)."""
    talk = Conversation("restart", text_of("system", SYSTEM_TOKENS))
    reused = possible = evictions = 0
    state = {}
    for turn in range(turns):
        with start(place.settings()) as server:
            for other in range(others):
                Conversation(f"other {turn} {other}", text_of(f"other {turn} {other}", 1200)).go_on(server)
                server.settle()
            could, did, _ = talk.go_on(server)
            possible += could
            reused += min(did, could)  # Any excess is the template's head, from other prompts.
            server.settle()
            state = server.state()
            evictions += state["segment_evictions"] + state["state_evictions"]
            server.kill()
    return reused, possible, state["saved_bytes"], evictions


def hot_prefix(start, place, write, save, conversations=40):
    """Conversations that share a system prompt, each followed by another prompt; then kill -9.

    All but the system prompt is more than twenty times as large as that. With `save` a POST /cache/save comes before the
    kill; without it the tier has what it was given of its own accord. Returns (tokens of the system prompt that
    the next server reuses, tokens it has, tokens of all else)."""
    system = text_of("hot", SYSTEM_TOKENS)
    whole = HEAD_TOKENS + SYSTEM_TOKENS
    traffic = 0
    with start(place.settings(write)) as server:
        for number in range(conversations):
            talks = [Conversation(f"hot {number}", system, question_tokens=100),
                     Conversation(f"traffic {number}", text_of(f"traffic {number}", 200), question_tokens=100)]
            for talk in talks:
                talk.go_on(server)
                traffic += talk.known
            traffic -= whole
            time.sleep(0.25)  # People think; and Redis orders entries by full seconds.
        if save:
            server.settle()
        else:
            server.wait_for_tiers()
        server.kill()
    with start(place.settings(write)) as server:
        _, reused, _ = Conversation("afterwards", system, question_tokens=100).go_on(server)
        server.kill()
    return min(reused, whole), whole, traffic


def stalls(start, place, requests, seed):
    """How long requests wait for a Redis that stops answering.

    Each request is the second turn of a conversation that only Redis has. Every other one arrives after Redis has
    stopped; during the rest it stops up to 20 ms later. Before each of them Redis goes on, until the server loads
    from it again, so it always waits for it. A wait is the time of the request at the client, less what the server
    says it computed. Returns (waits in ms, waits while Redis answers, how many requests loaded something)."""
    chance = random.Random(seed)
    words = text_of("stalls", SYSTEM_TOKENS)
    talks = [Conversation(f"stalls {number}", f"{number} {words}", answer_tokens=4) for number in range(6 * requests)]
    with start(place.settings()) as server:
        for talk in talks:
            talk.go_on(server)
        server.settle()
        server.kill()
    waits, without, loaded = [], [], 0
    with start(place.settings()) as server:
        while len(waits) < requests:
            if len(talks) < 2:
                raise ServerFailed("a tier that answers again was seldom asked")
            took, report = _timed(talks.pop(), server)
            if not report.get("tier"):
                time.sleep(0.5)  # It is still left alone.
                continue
            without.append(took)
            stop = threading.Timer(chance.uniform(0, 0.02), place.stall)
            if len(waits) % 2:
                stop.start()
            else:
                place.stall()
            try:
                took, report = _timed(talks.pop(), server)
            finally:
                if len(waits) % 2:
                    stop.join()
                place.go_on()
            waits.append(took)
            loaded += 1 if report.get("tier") else 0
        server.kill()
    return waits, without, loaded


def _timed(talk, server):
    """One turn. Returns (its time in ms, less what was computed; the server's report)."""
    begin = time.monotonic()
    report = talk.go_on(server)[2]
    took = (time.monotonic() - begin) * 1e3
    return took - server.timings["prompt_ms"] - server.timings["predicted_ms"], report


class Crowd:
    """Conversations that go on in an order that follows from a seed, and are replaced when they are long.

    Of every four, three share a system prompt with others of theirs."""

    def __init__(self, seed, count=24, longest=8):
        self._random = random.Random(seed)
        self._count = count
        self._longest = longest
        self._begun = 0
        self._talks = [self._fresh() for _ in range(count)]

    def _fresh(self):
        self._begun += 1
        number = self._begun
        system = f"shared {number % 3}" if number % 4 else f"alone {number}"
        return Conversation(f"crowd {number}", text_of(system, SYSTEM_TOKENS), question_tokens=120)

    def go_on(self, server):
        """The next turn. Returns how many tokens were reused."""
        index = self._random.randrange(self._count)
        talk = self._talks[index]
        if talk.turns == self._longest:
            talk = self._talks[index] = self._fresh()
        return talk.go_on(server)[1]


def two_servers(start, place, seconds, seed, capacity_bytes, saved_bytes, say):
    """Conversations that move between two servers of one place. One of them is killed every 20 to 40 seconds; a Redis is
    emptied after half of the time (five minutes at most), and then every ten minutes.

    Then the same conversations with one server that has all that memory and is left alone. Returns
    (reused by the two, reused by the one, facts)."""
    chance = random.Random(seed)
    crowd = Crowd(seed)
    facts = collections.Counter()
    saved = ["--saved-bytes", saved_bytes]
    servers = [start([*place.settings(), *saved]).__enter__() for _ in range(2)]
    reused = turns = 0
    try:
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + chance.uniform(10, 20)
        next_empty = time.monotonic() + min(seconds / 2, 300)
        while time.monotonic() < end:
            reused += crowd.go_on(servers[chance.randrange(2)])
            turns += 1
            time.sleep(0.05)  # People think; a server saves in such moments.
            if time.monotonic() >= next_kill:
                which = chance.randrange(2)
                servers[which].kill()
                servers[which] = start([*place.settings(), *saved]).__enter__()
                facts["kills"] += 1
                next_kill = time.monotonic() + chance.uniform(20, 40)
            if place.name == "redis" and time.monotonic() >= next_empty:
                place.empty()
                facts["emptied"] += 1
                next_empty = time.monotonic() + 600
        for server in servers:
            readings = server.metrics()
            facts["evictions"] += int(readings.value("stemma_tier_evictions_total") or 0)
            facts["refused"] += int(readings.value("stemma_tier_refused_total") or 0)
            facts["corrupt"] += int(readings.value("stemma_tier_corrupt_total") or 0)
    finally:
        for server in servers:
            server.end()
    say(f"{turns} turns; the same with one server")
    alone, crowd = 0, Crowd(seed)
    with start(["--saved-bytes", 2 * saved_bytes + capacity_bytes]) as server:
        for _ in range(turns):
            alone += crowd.go_on(server)
    facts["turns"] = turns
    return reused, alone, facts
