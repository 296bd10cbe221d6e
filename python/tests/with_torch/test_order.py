"""The order of work on blocks between streams, on a machine without any: a detector of races sees
every use of a block, and knows which events each stream has waited for."""

import contextlib
import tempfile
import types
import unittest

import models
import torch

import stemma
import stemma.torch as stemma_torch
from stemma.torch import _pages, _states
from stemma.torch._order import Order

GPU = types.SimpleNamespace(type="cuda")


class Stream:
    """Its clock says how much of each stream's work comes before what it does next."""

    def __init__(self, number):
        self.cuda_stream = number
        self.clock = {}

    def works(self):
        self.clock[self.cuda_stream] = self.clock.get(self.cuda_stream, 0) + 1
        return self.cuda_stream, self.clock[self.cuda_stream]

    def wait_event(self, event):
        for number, at in event.clock.items():
            self.clock[number] = max(at, self.clock.get(number, 0))

    def comes_after(self, work):
        number, at = work
        return self.clock.get(number, 0) >= at


class Event:
    def __init__(self):
        self.clock, self.waited_for = {}, False

    def record(self, stream):
        self.clock = dict(stream.clock)

    def query(self):
        return False

    def synchronize(self):
        self.waited_for = True


class Streams:
    """In place of torch.cuda."""

    Event = Event

    def __init__(self):
        self.default = Stream(0)
        self.now = self.default

    def default_stream(self, device):
        return self.default

    def current_stream(self, device):
        return self.now


class Detector:
    """Notes who used each block last, and complains about a use that may come too early."""

    def __init__(self, streams):
        self.streams = streams
        self.used = {}  # Block of pages: who read or wrote it, by stream.
        self.wrote = {}
        self.races = []

    def touches(self, pages, blocks, writes):
        now = self.streams.now
        work = now.works()
        for block in blocks:
            place = (id(pages), int(block))
            before = list(self.wrote.get(place, {}).values())
            if writes:
                before += self.used.get(place, {}).values()
            self.races += [(place[1], one) for one in before if not now.comes_after(one)]
            self.used.setdefault(place, {})[work[0]] = work
            if writes:
                self.wrote[place] = {work[0]: work}

    def everything_is_before(self, stream):
        return all(stream.comes_after(w) for one in self.used.values() for w in one.values())


@contextlib.contextmanager
def watched(detector):
    """Every function that reads or writes blocks tells the detector."""
    kept = []

    def watch(owner, name, uses):
        original = getattr(owner, name)
        kept.append((owner, name, original))

        def with_note(*args, **kwargs):
            for pages, blocks, writes in uses(*args, **kwargs):
                detector.touches(pages, blocks, writes)
            return original(*args, **kwargs)

        setattr(owner, name, with_note)

    pages = _pages.Pages
    watch(pages, "read", lambda p, layer, name, blocks, last, into: [(p, blocks.tolist(), False)])
    watch(pages, "write", lambda p, layer, name, blocks, *rest: [(p, blocks.unique().tolist(), True)])
    watch(pages, "copy", lambda p, source, target: [(p, [source], False), (p, [target], True)])
    watch(_states, "save", lambda p, slot, layers, row: [(p, [slot], True)])
    watch(_states, "load", lambda p, slot, *rest: [(p, [slot], False)])
    try:
        yield
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


class OrderTest(unittest.TestCase):
    def setUp(self):
        self.streams = Streams()
        self.order = Order(GPU, self.streams)
        self.a, self.b = Stream(1), Stream(2)

    def use(self, stream):
        self.streams.now = stream
        work = stream.works()
        self.order.used()
        return work

    def test_the_next_user_waits_for_the_last(self):
        work = self.use(self.a)
        self.streams.now = self.b
        self.assertFalse(self.b.comes_after(work))
        self.order.wait_for_others()
        self.assertTrue(self.b.comes_after(work))

    def test_the_mover_comes_after_work_of_any_stream(self):
        early = self.use(self.a)
        self.assertFalse(self.streams.default.comes_after(early))
        self.order.mover_waits()
        self.assertTrue(self.streams.default.comes_after(early))
        late = self.use(self.b)
        self.assertTrue(self.streams.default.comes_after(late))

    def test_settle_waits_for_every_stream_once(self):
        self.use(self.a)
        self.use(self.b)
        events = list(self.order._events.values())
        self.order.settle()
        self.assertTrue(all(event.waited_for for event in events))
        self.assertEqual(self.order._events, {})

    def test_a_cpu_has_no_order(self):
        order = Order(torch.device("cpu"), streams=object())
        order.mover_waits()
        order.used()
        order.wait_for_others()
        order.settle()


class Races(unittest.TestCase):
    def serve(self, model, pool, levels=(), requests=24):
        """Requests on three streams. In the middle of some, others run from begin to end."""
        streams = Streams()
        detector = Detector(streams)
        users = [streams.default, Stream(1), Stream(2)]
        inside = []

        def meanwhile(module, inputs, output):
            if len(inside) != 1 or inside[0] % 2:
                return
            n = inside[0]
            inside.append(n)
            own, streams.now = streams.now, users[(n + 1) % 3]
            late = models.tokens(20 + n % 17, seed=n + 1000)
            model.generate(late, do_sample=False, max_new_tokens=20)
            streams.now = own
            inside.pop()

        hook = model.register_forward_hook(meanwhile)
        self.addCleanup(hook.remove)
        with (
            stemma_torch.attach(model, tokens=pool, saved_states=1, levels=levels) as attached,
            watched(detector),
        ):
            attached.pool._order = Order(GPU, streams)
            if levels:
                attached.pool._order.mover_waits()
            for n in range(requests):
                streams.now = users[n % 3]
                ids = models.tokens(30 + n % 7, seed=n // 4)
                inside.append(n)
                out = model.generate(ids, do_sample=False, max_new_tokens=3)
                if n % 5 == 0:  # A part of another prompt: blocks are copied.
                    model.generate(out[:, :27], do_sample=False, max_new_tokens=2)
                inside.pop()
                if levels:
                    self.assertTrue(detector.everything_is_before(streams.default))
            attached.pool.close()
        self.assertGreater(len(detector.used), 4)
        self.assertEqual(detector.races, [])

    def test_no_model_has_a_race(self):
        for make in (models.llama, models.mistral, models.lfm, models.qwen_next):
            with self.subTest(make.__name__):
                self.serve(make(), 160)

    def test_no_race_with_the_mover(self):
        with tempfile.TemporaryDirectory() as folder:
            self.serve(models.llama(), 160, [stemma.Level("disk", 1 << 24, where=folder)])
        self.serve(models.llama(), 160, [stemma.Level("host", 1 << 24)])

    def test_the_detector_sees_a_race(self):
        original = Order.wait_for_others
        self.addCleanup(setattr, Order, "wait_for_others", original)
        Order.wait_for_others = lambda order: None
        with self.assertRaises(AssertionError):
            self.serve(models.llama(), 160)


if __name__ == "__main__":
    unittest.main()
