"""Wrong arguments are refused with a sentence that says what to change, and nothing stays
behind."""

import gc
import unittest
import warnings

import models
import torch

import stemma
import stemma.torch as stemma_torch


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = models.llama()
        cls.shape = stemma_torch.probe(cls.model)

    def setUp(self):
        self.pool = stemma_torch.Pool(self.shape, scope=stemma.Scope("test"), tokens=512)
        self.ids = models.tokens(40)

    def tearDown(self):
        self.assertEqual(self.pool.cache.stats().leases, 0)
        self.pool.cache.check_invariants()
        self.pool.close()

    def refuse(self, sentence, *args, **kwargs):
        with self.assertRaisesRegex(stemma.InvalidArgument, sentence):
            self.pool.cache_for(*args, **kwargs)

    def test_ids(self):
        self.refuse("torch tensor", [[1, 2, 3]])
        self.refuse("torch.int64", self.ids.float())
        self.refuse("rows, tokens", self.ids[0])
        self.refuse("not empty", self.ids[:, :0])
        self.refuse("0 or more", self.ids - 1000)

    def test_masks(self):
        mask = torch.ones_like(self.ids)
        self.refuse("shape", self.ids, mask[:, :-1])
        self.refuse("shape", self.ids, mask[:, :, None])
        self.refuse("every token", self.ids, mask * 0)
        hole = mask.clone()
        hole[0, 7] = 0
        self.refuse("pad on the left", self.ids, hole)

    def test_pools_that_are_too_small(self):
        with self.assertRaisesRegex(stemma.InvalidArgument, "needs 32 or more"):
            stemma_torch.Pool(self.shape, scope=stemma.Scope("test"), tokens=8)
        window = stemma_torch.probe(models.mistral())
        with self.assertRaisesRegex(stemma.InvalidArgument, "too small"):
            stemma_torch.Pool(window, scope=stemma.Scope("test"), tokens=models.WINDOW)
        with self.assertRaisesRegex(stemma.InvalidArgument, "power of two"):
            stemma_torch.Pool(self.shape, scope=stemma.Scope("test"), tokens=512, block_tokens=24)
        with self.assertRaises(ValueError):
            stemma_torch.Pool(self.shape, scope=stemma.Scope("test"), tokens=-5)

    def test_memory_that_no_machine_has(self):
        with self.assertRaises(stemma.OutOfMemory):
            stemma_torch.Pool(self.shape, scope=stemma.Scope("test"), tokens=1 << 31)

    def give(self, sentence, memory):
        with self.assertRaisesRegex(stemma.InvalidArgument, sentence):
            stemma_torch.Pool(
                self.shape, scope=stemma.Scope("test"), tokens=512, memory=[memory]
            )

    def test_memory_of_the_callers(self):
        size = self.shape.groups(16)[0].block_bytes
        good = torch.zeros((32, size), dtype=torch.uint8)
        self.give("torch.uint8", good.view(torch.int32))
        self.give("shape", good[:-1])
        self.give("contiguous", torch.zeros((size, 32), dtype=torch.uint8).T)
        odd = torch.zeros(32 * size + 1, dtype=torch.uint8)[1:].view(32, size)
        self.give("multiple of 16", odd)
        self.give("on meta", torch.zeros((32, size), dtype=torch.uint8, device="meta"))
        self.give("tensor", b"memory")
        with self.assertRaisesRegex(stemma.InvalidArgument, "1 groups"):
            stemma_torch.Pool(
                self.shape, scope=stemma.Scope("test"), tokens=512, memory=[good, good]
            )
        with stemma_torch.Pool(
            self.shape, scope=stemma.Scope("test"), tokens=512, memory=[good]
        ) as pool, torch.no_grad():
            cache = pool.cache_for(self.ids)
            self.model(self.ids, past_key_values=cache)
            cache.close()
            self.assertTrue(bool(good.any()))
            good.untyped_storage().resize_(0)
            with self.assertRaisesRegex(stemma.WrongState, "freed"):
                pool.cache_for(self.ids)

    def test_a_model_that_changed_after_attach(self):
        model = models.llama()
        with stemma_torch.attach(model, tokens=512) as attached:
            model.to(torch.bfloat16)
            with self.assertRaisesRegex(stemma.InvalidArgument, "bfloat16.*Attach to"):
                model.generate(self.ids, max_new_tokens=2)
            self.assertEqual(attached.pool.cache.stats().leases, 0)

    def test_another_batch_or_another_model(self):
        cache = self.pool.cache_for(self.ids)
        with torch.no_grad(), self.assertRaisesRegex(stemma.InvalidArgument, "another batch"):
            self.model(self.ids.repeat(2, 1), past_key_values=cache)
        cache.close()
        cache = self.pool.cache_for(self.ids)
        other = models.llama(num_key_value_heads=4)
        with torch.no_grad(), self.assertRaisesRegex(stemma.InvalidArgument, "shape"):
            other(self.ids, past_key_values=cache)
        cache.close()

    def test_gradients(self):
        cache = self.pool.cache_for(self.ids)
        with self.assertRaisesRegex(stemma.WrongState, "no_grad"):
            self.model(self.ids, past_key_values=cache)
        cache.close()

    def test_layers_on_several_devices_or_without_weights(self):
        with torch.device("meta"):
            model = models.llama()
        with self.assertRaisesRegex(stemma.InvalidArgument, "meta"):
            stemma_torch.probe(model)

    def test_finish_with_other_ids(self):
        with torch.no_grad():
            for ids, sentence in (
                (self.ids + 1, "do not begin"),
                (self.ids[:, :-1], "shape"),
                (self.ids.repeat(2, 1), "shape"),
                (self.ids.float(), "int64"),
            ):
                cache = self.pool.cache_for(self.ids)
                self.model(self.ids, past_key_values=cache)
                with self.assertRaisesRegex(stemma.InvalidArgument, sentence):
                    cache.finish(ids)
                self.assertTrue(cache.closed)
            cache = self.pool.cache_for(self.ids)
            self.model(self.ids[:, 39:], past_key_values=cache)
            with self.assertRaisesRegex(stemma.InvalidArgument, "3 lengths"):
                cache.finish(self.ids, [1, 2, 3])

    def test_a_finished_cache(self):
        with torch.no_grad():
            cache = self.pool.cache_for(self.ids)
            self.model(self.ids, past_key_values=cache)
            cache.finish(self.ids)
            with self.assertRaises(stemma.WrongState):
                cache.finish(self.ids)
            with self.assertRaises(stemma.WrongState):
                cache.checkpoint()
            with self.assertRaises(stemma.WrongState):
                cache.reset()
            cache.close()
            fresh = self.pool.cache_for(self.ids)
            fresh.close()
            with self.assertRaisesRegex(stemma.WrongState, "finished"):
                self.model(self.ids[:, 39:], past_key_values=fresh)

    def test_a_forgotten_cache_gives_its_blocks_back(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cache = self.pool.cache_for(self.ids)
            self.assertEqual(self.pool.cache.stats().leases, 1)
            del cache
            gc.collect()
        self.assertEqual(self.pool.cache.stats().leases, 0)

    def test_a_closed_pool(self):
        pool = stemma_torch.Pool(self.shape, scope=stemma.Scope("test"), tokens=512)
        with torch.no_grad():
            cache = pool.cache_for(self.ids)
            self.model(self.ids, past_key_values=cache)
            pool.close()
            self.assertTrue(cache.closed)
            # What it has copied is still its own.
            self.model(self.ids[:, :1], past_key_values=cache)
        with self.assertRaises(stemma.Closed):
            pool.cache_for(self.ids)
        pool.close()

    def test_crop_to_what_a_window_layer_does_not_have(self):
        model = models.mistral()
        with stemma_torch.Pool(
            stemma_torch.probe(model), scope=stemma.Scope("test"), tokens=512
        ) as pool, torch.no_grad():
            cache = pool.cache_for(models.tokens(200), room=201)
            model(models.tokens(200), past_key_values=cache)
            with self.assertRaisesRegex(stemma.InvalidArgument, "behind what layer 0 still has"):
                cache.crop(-150)
            cache.close()

    @unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
    def test_no_cuda(self):
        import dataclasses

        there = dataclasses.replace(self.shape, device=torch.device("cuda"))
        with self.assertRaisesRegex(stemma.Unsupported, "no CUDA device"):
            stemma_torch.Pool(there, scope=stemma.Scope("test"), tokens=512)


if __name__ == "__main__":
    unittest.main()
