"""What is reused is right: the same bits as a cache of transformers' own, the same text, every
batch."""

import unittest

import models
import torch
from transformers import DynamicCache

import stemma
import stemma.torch as stemma_torch


def pool_of(model, tokens=2048, **options):
    return stemma_torch.Pool(
        stemma_torch.probe(model), scope=stemma.Scope("test"), tokens=tokens, **options
    )


def cropped(model, ids, depth):
    """A DynamicCache with all of `ids`, cropped by hand to `depth`."""
    cache = DynamicCache(config=model.config)
    cache.activate_past_recording()
    model(ids, past_key_values=cache, use_cache=True)
    cache.crop(depth - ids.shape[1])
    for layer in cache.layers:
        layer.record_past = False
    return cache


class Bits(unittest.TestCase):
    def check(self, make, dtype, attention):
        model = make().to(dtype)
        model.set_attn_implementation(attention)
        ids = models.tokens(150)
        pool = pool_of(model)
        with torch.no_grad(), pool:
            cache = pool.cache_for(ids)
            model(ids, past_key_values=cache, use_cache=True)
            cache.close()
            for depth in (149, 96, 33):
                other = torch.cat((ids[:, :depth], (ids[:, depth:] + 1) % 96), dim=1)
                ours = pool.cache_for(other)
                self.assertEqual(ours.depth, depth)
                theirs = cropped(model, ids, depth)
                for mine, own in zip(ours.layers, theirs.layers):
                    self.assertTrue(torch.equal(mine.keys, own.keys))
                    self.assertTrue(torch.equal(mine.values, own.values))
                step = other[:, depth:]
                for _ in range(4):
                    mine = model(step, past_key_values=ours, use_cache=True).logits
                    own = model(step, past_key_values=theirs, use_cache=True).logits
                    case = (make.__name__, dtype, attention, depth)
                    self.assertTrue(torch.equal(mine, own), case)
                    step = own[:, -1:].argmax(-1)
                ours.close()
            pool.cache.check_invariants()

    def test_kv_and_logits_are_those_of_a_cropped_dynamic_cache_in_fp32(self):
        for make in models.ATTENTION:
            self.check(make, torch.float32, "sdpa")
            self.check(make, torch.float32, "eager")

    def test_kv_and_logits_are_those_of_a_cropped_dynamic_cache_in_bf16(self):
        for make in models.ATTENTION:
            self.check(make, torch.bfloat16, "sdpa")


class Conversations(unittest.TestCase):
    def talk(self, model, conversations, turns=3):
        """Turns of several conversations, one after the other in each round; the plain model's
        text."""
        system = models.tokens(40, seed=99)
        texts = [system for _ in range(conversations)]
        for turn in range(turns):
            for n, text in enumerate(texts):
                ids = torch.cat((text, models.tokens(6 + n % 5, seed=1000 * turn + n)), dim=1)
                wanted = models.plain(model, ids, max_new_tokens=6)
                found = model.generate(ids, do_sample=False, max_new_tokens=6)
                self.assertTrue(torch.equal(wanted, found), (type(model).__name__, turn, n))
                texts[n] = found

    def test_greedy_text_of_a_hundred_conversations_is_the_same(self):
        model = models.llama()
        with stemma_torch.attach(model, tokens=16384) as attached:
            self.talk(model, 100)
            counts = attached.pool.counts()
            self.assertEqual(counts["requests"], 300)
            self.assertGreater(counts["reused_tokens"], 0.7 * counts["prompt_tokens"])
            self.assertEqual(attached.passed, {})
            attached.pool.cache.check_invariants()

    def test_the_same_holds_for_windows_and_running_states(self):
        for make in (models.mistral, models.gemma, models.lfm, models.qwen_next):
            model = make()
            with stemma_torch.attach(model, tokens=8192) as attached:
                self.talk(model, 6)
                counts = attached.pool.counts()
                self.assertGreater(counts["reused_tokens"], 0.5 * counts["prompt_tokens"])
                attached.pool.cache.check_invariants()

    def test_the_same_holds_when_the_pool_is_much_too_small(self):
        for make in (*models.ATTENTION, models.lfm):
            model = make()
            with stemma_torch.attach(model, tokens=160, saved_states=4) as attached:
                self.talk(model, 8)
                attached.pool.cache.check_invariants()
                self.assertEqual(attached.pool.cache.stats().leases, 0)

    def test_a_prompt_again_is_found_but_for_its_last_token(self):
        for make in (*models.ATTENTION, *models.HYBRIDS):
            model = make()
            ids = models.tokens(77)
            with stemma_torch.attach(model, tokens=1024) as attached:
                model.generate(ids, max_new_tokens=3)
                self.assertEqual(attached.last.reused_tokens, [0])
                model.generate(ids, max_new_tokens=3)
                self.assertEqual(attached.last.reused_tokens, [76])

    def test_an_answer_is_part_of_the_next_turn(self):
        for make in (*models.ATTENTION, *models.HYBRIDS):
            model = make()
            with stemma_torch.attach(model, tokens=1024) as attached:
                out = model.generate(models.tokens(50), max_new_tokens=30, do_sample=False)
                # The last token was sampled and never computed.
                model.generate(torch.cat((out, models.tokens(9, seed=1)), dim=1), max_new_tokens=2)
                self.assertEqual(attached.last.reused_tokens, [79])


class Batches(unittest.TestCase):
    def same(self, make, ids, mask, **options):
        model = make()
        torch.manual_seed(5)
        wanted = models.plain(model, ids, attention_mask=mask, **options)
        with stemma_torch.attach(model, tokens=4096) as attached:
            for _ in range(3):
                torch.manual_seed(5)
                found = model.generate(ids, attention_mask=mask, **{"do_sample": False, **options})
                self.assertTrue(torch.equal(wanted, found), (make.__name__, options))
            self.assertEqual(attached.passed, {})
            attached.pool.cache.check_invariants()
            self.assertEqual(attached.pool.cache.stats().leases, 0)
            return attached.last

    def test_left_padding(self):
        for make in models.ATTENTION:
            ids, mask = models.padded([60, 47, 9])
            last = self.same(make, ids, mask, max_new_tokens=12)
            self.assertEqual(last.reused_tokens, [59, 46, 8])

    def test_rows_of_different_depth_continue_at_one_column(self):
        for make in models.ATTENTION:
            model = make()
            ids, mask = models.padded([60, 47])
            with stemma_torch.attach(model, tokens=4096) as attached:
                model.generate(ids[1:, 13:], max_new_tokens=2)  # The second row alone.
                wanted = models.plain(model, ids, attention_mask=mask, max_new_tokens=8)
                found = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=8)
                self.assertEqual(attached.last.reused_tokens, [0, 0])
                self.assertTrue(torch.equal(wanted, found))
                other = ids.clone()
                other[0, 40:] = (other[0, 40:] + 1) % 90 + 2  # The first row parts at column 40.
                options = {"attention_mask": mask, "max_new_tokens": 8}
                wanted = models.plain(model, other, **options)
                found = model.generate(other, do_sample=False, **options)
                self.assertEqual(attached.last.reused_tokens, [40, 27])
                self.assertTrue(torch.equal(wanted, found))

    def test_running_states_of_rows_of_one_length(self):
        for make in models.HYBRIDS:
            ids = models.tokens(60, rows=2)
            last = self.same(make, ids, torch.ones_like(ids), max_new_tokens=8)
            self.assertEqual(last.reused_tokens, [59, 59])

    def test_beams_keep_the_prompt(self):
        for make in (*models.ATTENTION, models.lfm):
            ids = models.tokens(60, rows=2)
            last = self.same(make, ids, torch.ones_like(ids), num_beams=3, max_new_tokens=8)
            self.assertEqual(last.reused_tokens, [59] * 6)
            self.assertTrue(last.shuffled)

    def test_beams_with_padding_and_several_answers(self):
        ids, mask = models.padded([60, 47])
        for make in models.ATTENTION:
            self.same(
                make, ids, mask, num_beams=3, num_return_sequences=2, max_new_tokens=8
            )

    def test_several_answers_to_one_prompt_are_all_kept(self):
        for make in (*models.ATTENTION, models.qwen_next):
            model = make()
            ids = models.tokens(60)
            with stemma_torch.attach(model, tokens=4096) as attached:
                torch.manual_seed(3)
                out = model.generate(ids, do_sample=True, num_return_sequences=4, max_new_tokens=20)
                self.assertEqual(len({tuple(row.tolist()) for row in out}), 4)
                for row in out:
                    model.generate(row[None], max_new_tokens=1)
                    self.assertEqual(attached.last.reused_tokens, [79], make.__name__)

    def test_an_answer_that_ended_early_is_kept_to_its_end(self):
        model = models.llama()
        ids = models.tokens(60, rows=3)
        ends = list(range(2, 30))
        options = {"eos_token_id": ends, "pad_token_id": 0, "max_new_tokens": 20}
        mask = torch.ones_like(ids)
        out = models.plain(model, ids, attention_mask=mask, **options)
        with stemma_torch.attach(model, tokens=4096) as attached:
            found = model.generate(ids, attention_mask=mask, do_sample=False, **options)
            self.assertTrue(torch.equal(out, found))
            lengths = [60 + next((n + 1 for n, t in enumerate(row[60:]) if t in ends), 20)
                       for row in out.tolist()]  # fmt: skip
            self.assertLess(min(lengths), out.shape[1])  # Or this shows nothing.
            for row, length in zip(out, lengths):
                text = torch.cat((row[:length], models.tokens(5, seed=7)[0]))[None]
                model.generate(text, max_new_tokens=1)
                computed = min(length, out.shape[1] - 1)
                self.assertEqual(attached.last.reused_tokens, [computed])

    def test_int32_ids(self):
        model = models.llama()
        ids = models.tokens(60)
        pool = pool_of(model)
        with pool, torch.no_grad():
            cache = pool.cache_for(ids.int())
            model(ids, past_key_values=cache)
            cache.close()
            again = pool.cache_for(ids)
            self.assertEqual(again.depth, 59)
            again.close()


class Primitive(unittest.TestCase):
    def test_cache_for_and_finish(self):
        for make in (*models.ATTENTION, models.lfm):
            model = make()
            ids = models.tokens(60)
            wanted = models.plain(model, ids, max_new_tokens=10)
            with pool_of(model) as pool:
                for reused in (0, 59):
                    cache = pool.cache_for(ids)
                    if reused and not pool.shape.has_states:
                        self.assertEqual(cache.reused_tokens, [reused])
                    out = model.generate(
                        ids, past_key_values=cache, do_sample=False, max_new_tokens=10
                    )
                    self.assertTrue(torch.equal(out, wanted))
                    cache.finish(out)
                self.assertEqual(pool.cache.stats().leases, 0)

    def test_a_prompt_in_pieces(self):
        for make in models.ATTENTION:
            model = make()
            ids = models.tokens(120)
            with pool_of(model) as pool, torch.no_grad():
                cache = pool.cache_for(ids)
                for at in range(0, 120, 50):
                    logits = model(ids[:, at : at + 50], past_key_values=cache).logits
                wanted = DynamicCache(config=model.config)
                for at in range(0, 120, 50):
                    theirs = model(ids[:, at : at + 50], past_key_values=wanted).logits
                self.assertTrue(torch.equal(logits, theirs))
                cache.close()
                again = pool.cache_for(ids)
                self.assertEqual(again.depth, 119)
                again.close()

    def test_checkpoints_between_forwards_can_be_continued_from(self):
        model = models.qwen_next()
        ids = models.tokens(100)
        with pool_of(model) as pool, torch.no_grad():
            cache = pool.cache_for(ids)
            model(ids[:, :40], past_key_values=cache)
            self.assertEqual(cache.checkpoint(), 1)
            model(ids[:, 40:], past_key_values=cache)
            cache.close()
            other = torch.cat((ids[:, :55], models.tokens(20, seed=4)), dim=1)
            again = pool.cache_for(other)
            self.assertEqual(again.depth, 40)
            logits = model(other[:, 40:], past_key_values=again).logits[:, -1]
            again.close()
            self.assertTrue(torch.allclose(logits, model(other).logits[:, -1], atol=1e-5))

    def test_what_is_not_computed_to_its_end_is_not_found(self):
        model = models.llama()
        ids = models.tokens(64)
        with pool_of(model) as pool, torch.no_grad():
            cache = pool.cache_for(ids)
            model(ids[:, :32], past_key_values=cache)
            cache.close()
            again = pool.cache_for(ids)
            self.assertEqual(again.depth, 0)
            again.close()
            pool.cache.check_invariants()

    def test_tokens_in_place_of_cropped_ones_are_not_kept(self):
        model = models.llama()
        ids = models.tokens(64)
        wrong = (ids + 1) % 90 + 2
        with pool_of(model) as pool, torch.no_grad():
            cache = pool.cache_for(ids)
            model(ids, past_key_values=cache)
            cache.crop(-40)
            model(wrong[:, 24:], past_key_values=cache)
            cache.close()
            reference = DynamicCache(config=model.config)
            model(ids, past_key_values=reference)
            again = pool.cache_for(ids)
            self.assertEqual(again.depth, 63)
            self.assertTrue(torch.equal(again.layers[1].keys, reference.layers[1].keys[:, :, :63]))
            again.close()


if __name__ == "__main__":
    unittest.main()
