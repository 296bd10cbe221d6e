"""Levels under the pool: what it evicted, and what another process left behind."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import models
import torch

import stemma
import stemma.torch as stemma_torch

# A slow machine must not make levels late, nor computing look cheaper than loading.
PATIENT = {"query_s": 120.0, "load_s": 120.0}
MAKERS = {make.__name__: make for make in (*models.ATTENTION, *models.HYBRIDS)}


def loading_is_worth_it(attached):
    attached.pool.tiers.prefilled(1000, 1000.0)


def serve(folder):
    """One process: each model generates twice. Prints what was reused and what was answered."""
    ids, more = models.tokens(150), models.tokens(20, seed=1)
    for name, make in MAKERS.items():
        model = make()
        levels = [stemma.Level("disk", capacity_bytes=64 << 20, where=pathlib.Path(folder, name))]
        with stemma_torch.attach(model, tokens=1024, levels=levels, **PATIENT) as attached:
            for text in (ids, torch.cat((ids[:, :100], more), dim=1)):
                loading_is_worth_it(attached)
                out = model.generate(text, do_sample=False, max_new_tokens=8)
                answer = out[0, text.shape[1] :].tolist()
                print(name, attached.last.reused_tokens[0], *answer)
            assert attached.pool.flush(300)


class Levels(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_process(self):
        done = subprocess.run(
            [sys.executable, __file__, "serve", self.folder.name],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual(len(lines), 2 * len(MAKERS))
        return {(n % 2, line[0]): (int(line[1]), line[2:]) for n, line in enumerate(lines)}

    def test_another_process_finds_the_whole_prompt_on_the_disk(self):
        cold, warm = self.run_process(), self.run_process()
        for name in MAKERS:
            self.assertEqual(cold[0, name][0], 0)
            # 150 tokens are 9 blocks and a part; a token must be left to compute.
            self.assertEqual(warm[0, name][0], 144, name)
            self.assertGreaterEqual(warm[1, name][0], 96, name)
            for which in (0, 1):
                self.assertEqual(cold[which, name][1], warm[which, name][1], name)

    def test_what_was_evicted_comes_back_from_host_memory(self):
        for make in (*models.ATTENTION, models.qwen_next):
            model = make()
            texts = [models.tokens(150, seed=n) for n in range(8)]
            wanted = [models.plain(model, text, max_new_tokens=6) for text in texts]
            levels = [stemma.Level("host", capacity_bytes=64 << 20)]
            with stemma_torch.attach(model, tokens=320, levels=levels, **PATIENT) as attached:
                for _ in range(2):
                    for text, answer in zip(texts, wanted):
                        loading_is_worth_it(attached)
                        out = model.generate(text, do_sample=False, max_new_tokens=6)
                        self.assertTrue(torch.equal(out, answer))
                    self.assertTrue(attached.pool.flush(300))
                counts = attached.pool.counts()
                self.assertGreater(counts["restored_tokens"], 4 * 144)
                self.assertEqual(counts["stores_failed"], 0)
                self.assertEqual(attached.pool.tiers.levels()[0].corrupt, 0)
                attached.pool.cache.check_invariants()

    def test_a_window_model_continues_at_depths_inside_a_stored_prompt(self):
        for make in (models.mistral, models.gemma):
            model = make()
            ids = models.tokens(200)
            other = torch.cat((ids[:, :100], models.tokens(30, seed=3)), dim=1)
            wanted = models.plain(model, other, max_new_tokens=6)
            levels = [stemma.Level("host", capacity_bytes=64 << 20)]
            with stemma_torch.attach(model, tokens=1024, levels=levels, **PATIENT) as attached:
                model.generate(ids, max_new_tokens=2)
                self.assertTrue(attached.pool.flush(300))
                attached.pool.clear()
                loading_is_worth_it(attached)
                out = model.generate(other, do_sample=False, max_new_tokens=6)
                self.assertEqual(attached.last.reused_tokens, [96])
                self.assertTrue(torch.equal(out, wanted))

    def test_other_weights_find_nothing_on_the_disk(self):
        levels = [stemma.Level("disk", capacity_bytes=64 << 20, where=self.folder.name)]
        ids = models.tokens(150)
        for reused, seed in ((0, 0), (0, 1), (144, 0)):
            torch.manual_seed(seed)
            model = models.llama()
            if seed:
                with torch.no_grad():
                    model.lm_head.weight[0, 0] += 1
            with stemma_torch.attach(model, tokens=1024, levels=levels, **PATIENT) as attached:
                loading_is_worth_it(attached)
                model.generate(ids, max_new_tokens=2)
                self.assertEqual(attached.last.reused_tokens, [reused])
                self.assertTrue(attached.pool.flush(300))

    def test_a_directory_in_use_is_refused_and_nothing_stays_open(self):
        model = models.llama()
        levels = [stemma.Level("disk", capacity_bytes=64 << 20, where=self.folder.name)]
        with stemma_torch.attach(model, tokens=1024, levels=levels, **PATIENT):
            other = models.llama()
            with self.assertRaises(stemma.Busy):
                stemma_torch.attach(other, tokens=1024, levels=levels, **PATIENT)
            self.assertNotIn("generate", other.__dict__)
        stemma_torch.attach(model, tokens=1024, levels=levels, **PATIENT).detach()

    def test_damaged_bytes_are_computed_again(self):
        model = models.llama()
        ids = models.tokens(150)
        wanted = models.plain(model, ids, max_new_tokens=6)
        levels = [stemma.Level("disk", capacity_bytes=64 << 20, where=self.folder.name)]
        with stemma_torch.attach(model, tokens=1024, levels=levels, **PATIENT) as attached:
            model.generate(ids, max_new_tokens=2)
            self.assertTrue(attached.pool.flush(300))
        damaged = 0
        for file in pathlib.Path(self.folder.name).rglob("*"):
            if file.is_file() and file.stat().st_size > 8192:
                raw = bytearray(file.read_bytes())
                for at in range(4500, len(raw), 997):
                    raw[at] ^= 0x40
                    damaged += 1
                file.write_bytes(raw)
        self.assertGreater(damaged, 10)
        with stemma_torch.attach(model, tokens=1024, levels=levels, **PATIENT) as attached:
            out = model.generate(ids, do_sample=False, max_new_tokens=6)
            self.assertTrue(torch.equal(out, wanted))
            self.assertLess(attached.last.reused_tokens[0], 144)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(*sys.argv[2:])
    else:
        unittest.main()
