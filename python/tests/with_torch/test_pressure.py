"""A pool that is too small, for long: memory stays flat, nothing is leaked, text stays right."""

import gc
import threading
import unittest

import models
import torch

import stemma
import stemma.torch as stemma_torch


def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


class Pressure(unittest.TestCase):
    def test_memory_is_flat_over_a_thousand_requests_with_eviction(self):
        model = models.llama()
        with stemma_torch.attach(model, tokens=512) as attached:
            pool = attached.pool
            taken = pool.memory_bytes
            seen = []
            for n in range(1000):
                ids = models.tokens(40 + n % 50, seed=n // 2)  # Every prompt twice.
                model.generate(ids, do_sample=False, max_new_tokens=2)
                if n in (199, 999):
                    attached.last = None
                    gc.collect()
                    tensors = sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())
                    seen.append((tensors, len(pool._live), resident_kib()))
            self.assertEqual(seen[0][:2], seen[1][:2])
            self.assertLess(seen[1][2] - seen[0][2], 16 * 1024)
            self.assertEqual(pool.memory_bytes, taken)
            stats = pool.cache.stats()
            self.assertEqual(stats.leases, 0)
            self.assertGreater(stats.evicted_blocks, 1000)
            counts = pool.counts()
            self.assertEqual(counts["requests"], 1000)
            self.assertGreater(counts["reused_tokens"], 0.4 * counts["prompt_tokens"])
            pool.cache.check_invariants()

    def test_a_prompt_larger_than_the_pool_is_answered_and_not_kept(self):
        for make in (*models.ATTENTION, models.lfm):
            model = make()
            ids = models.tokens(400)
            wanted = models.plain(model, ids, max_new_tokens=4)
            with stemma_torch.attach(model, tokens=128) as attached:
                for _ in range(2):
                    out = model.generate(ids, do_sample=False, max_new_tokens=4)
                    self.assertTrue(torch.equal(out, wanted))
                self.assertGreater(attached.pool.counts()["tokens_without_room"], 0)
                self.assertEqual(attached.pool.cache.stats().leases, 0)
                attached.pool.cache.check_invariants()

    def test_a_window_model_generates_far_beyond_its_window(self):
        for make in (models.mistral, models.gemma):
            model = make()
            ids = models.tokens(30)
            wanted = models.plain(model, ids, max_new_tokens=150)
            with stemma_torch.attach(model, tokens=1024) as attached:
                out = model.generate(ids, do_sample=False, max_new_tokens=150)
                self.assertTrue(torch.equal(out, wanted))
                model.generate(out, max_new_tokens=1)
                self.assertEqual(attached.last.reused_tokens, [179])

    def test_buffers_that_have_to_grow_or_slide(self):
        for make in models.ATTENTION:
            model = make()
            ids = models.tokens(30)
            wanted = models.plain(model, ids, max_new_tokens=100)
            with stemma_torch.Pool(
                stemma_torch.probe(model), scope=stemma.Scope("test"), tokens=1024
            ) as pool:
                cache = pool.cache_for(ids, room=31)  # Room for one token; there come a hundred.
                out = model.generate(
                    ids, past_key_values=cache, do_sample=False, max_new_tokens=100
                )
                self.assertTrue(torch.equal(out, wanted))
                kept = cache.finish(out)
                # A window layer may have lost the middle of the answer.
                self.assertIn(kept, (129, 0))
                self.assertEqual(pool.cache.stats().leases, 0)
                pool.cache.check_invariants()

    def test_threads_share_a_pool(self):
        model = models.llama()
        texts = [models.tokens(50 + n, seed=n % 3) for n in range(12)]
        wanted = [models.plain(model, text, max_new_tokens=5) for text in texts]
        wrong = []

        def work(first):
            for _ in range(3):
                for n in range(first, len(texts), 3):
                    out = model.generate(texts[n], do_sample=False, max_new_tokens=5)
                    if not torch.equal(out, wanted[n]):
                        wrong.append(n)

        with stemma_torch.attach(model, tokens=256) as attached:
            threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])
            self.assertEqual(attached.pool.counts()["requests"], 36)
            self.assertEqual(attached.pool.cache.stats().leases, 0)
            attached.pool.cache.check_invariants()


if __name__ == "__main__":
    unittest.main()
