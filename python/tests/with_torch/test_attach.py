"""attach() and detach(): which calls use the pool, which pass by, and which are refused."""

import unittest

import models
import torch
import transformers

import stemma
import stemma.torch as stemma_torch


class Attach(unittest.TestCase):
    def setUp(self):
        self.model = models.llama()
        self.ids = models.tokens(40)

    def passes(self, reason, **options):
        """Whether a call runs as if nothing were attached, and says why."""
        with stemma_torch.attach(self.model, tokens=1024) as attached:
            with self.assertLogs("stemma.torch", "WARNING") as said:
                given = {"do_sample": False, "max_new_tokens": 5, **options}
                out = self.model.generate(self.ids, **given)
            self.assertEqual(list(attached.passed.values()), [1])
            self.assertIn(reason, next(iter(attached.passed)))
            self.assertIn(reason, said.output[0])
            self.assertEqual(attached.pool.counts()["requests"], 0)
            return out

    def test_detach_gives_the_model_its_own_generate_back(self):
        before = self.model.generate
        attached = stemma_torch.attach(self.model, tokens=1024)
        self.assertNotEqual(self.model.generate, before)
        attached.detach()
        self.assertEqual(self.model.generate, before)
        attached.detach()
        self.model.generate(self.ids, max_new_tokens=2)

    def test_a_second_pool_is_refused(self):
        with stemma_torch.attach(self.model, tokens=1024):
            with self.assertRaisesRegex(stemma.WrongState, "detach"):
                stemma_torch.attach(self.model, tokens=1024)
        stemma_torch.attach(self.model, tokens=1024).detach()

    def test_options_of_generate_still_work(self):
        class Streamer:
            def __init__(self):
                self.seen = []

            def put(self, value):
                self.seen.append(value.flatten().tolist())

            def end(self):
                self.seen.append("end")

        wanted, found = Streamer(), Streamer()
        models.plain(self.model, self.ids, max_new_tokens=5, streamer=wanted)
        plain = models.plain(
            self.model, self.ids, max_new_tokens=5, return_dict_in_generate=True, output_logits=True
        )
        with stemma_torch.attach(self.model, tokens=1024) as attached:
            self.model.generate(self.ids, max_new_tokens=5, do_sample=False, streamer=found)
            self.assertEqual(wanted.seen, found.seen)
            config = transformers.GenerationConfig(max_new_tokens=5, do_sample=False)
            out = self.model.generate(
                self.ids, generation_config=config, return_dict_in_generate=True, output_logits=True
            )
            self.assertTrue(torch.equal(out.sequences, plain.sequences))
            for mine, own in zip(out.logits, plain.logits):
                self.assertTrue(torch.allclose(mine, own, atol=1e-5))
            with self.assertRaisesRegex(ValueError, "streamer"):
                self.model.generate(self.ids, num_beams=2, max_new_tokens=5, streamer=found)
            with self.assertRaisesRegex(ValueError, "no_such_option"):
                self.model.generate(self.ids, no_such_option=1)
            self.assertEqual(attached.passed, {})
            self.assertEqual(attached.pool.cache.stats().leases, 0)

    def test_input_ids_by_name_and_no_mask(self):
        with stemma_torch.attach(self.model, tokens=1024) as attached:
            for reused in (0, 39):
                self.model.generate(input_ids=self.ids, max_new_tokens=2)
                self.assertEqual(attached.last.reused_tokens, [reused])

    def test_padding_that_generate_infers_is_padding_here_too(self):
        self.model.generation_config.pad_token_id = 0
        ids, mask = models.padded([40, 30])
        wanted = models.plain(self.model, ids, attention_mask=mask, max_new_tokens=5)
        with stemma_torch.attach(self.model, tokens=1024) as attached:
            for reused in ([0, 0], [39, 29]):
                out = self.model.generate(ids, max_new_tokens=5, do_sample=False)
                self.assertTrue(torch.equal(out, wanted))
                self.assertEqual(attached.last.reused_tokens, reused)

    def test_chunks_of_prefill_are_refused(self):
        with stemma_torch.attach(self.model, tokens=1024):
            config = transformers.GenerationConfig(prefill_chunk_size=16, max_new_tokens=2)
            with self.assertRaisesRegex(stemma.InvalidArgument, "prefill_chunk_size"):
                self.model.generate(self.ids, generation_config=config)
            with self.assertRaisesRegex(stemma.InvalidArgument, "prefill_chunk_size"):
                self.model.generate(self.ids, prefill_chunk_size=16, max_new_tokens=2)

    def test_calls_with_a_cache_of_their_own_pass_by(self):
        cache = transformers.DynamicCache(config=self.model.config)
        self.passes("past_key_values", past_key_values=cache)
        self.passes("cache_implementation", cache_implementation="static")
        self.passes("use_cache", use_cache=False)

    def test_a_cache_that_the_configuration_asks_for_passes_by(self):
        config = transformers.GenerationConfig(cache_implementation="static", max_new_tokens=2)
        self.passes("static", generation_config=config)

    def test_assistants_and_embeddings_pass_by(self):
        self.passes("assistant_model", assistant_model=models.llama())
        embedded = self.model.get_input_embeddings()(self.ids)
        self.passes("inputs_embeds", inputs_embeds=embedded)

    def test_training_mode_passes_by(self):
        self.model.train()
        self.passes("eval()")

    def test_right_padding_passes_by(self):
        mask = torch.ones_like(self.ids)
        mask[0, -3:] = 0
        self.passes("pad on the left", attention_mask=mask)

    def test_padding_before_running_states_passes_by(self):
        self.model = models.lfm()
        self.ids, mask = models.padded([40, 30])
        wanted = models.plain(self.model, self.ids, attention_mask=mask, max_new_tokens=5)
        out = self.passes("running state", attention_mask=mask)
        self.assertTrue(torch.equal(out, wanted))

    def test_models_that_cannot_be_served_are_refused_by_name(self):
        given = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2}
        mamba = transformers.MambaForCausalLM(transformers.MambaConfig(**given, state_size=4))
        with self.assertRaisesRegex(stemma.Unsupported, "MambaForCausalLM"):
            stemma_torch.attach(mamba, tokens=1024)
        t5 = transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=2
            )
        )
        with self.assertRaisesRegex(stemma.Unsupported, "encoder and a decoder"):
            stemma_torch.attach(t5, tokens=1024)
        with self.assertRaisesRegex(stemma.InvalidArgument, "generate"):
            stemma_torch.attach(torch.nn.Linear(2, 2), tokens=1024)

    def test_a_call_that_fails_leaves_nothing_behind(self):
        class Stop(Exception):
            pass

        calls = []

        def fails(ids, scores, **kwargs):
            calls.append(1)
            if len(calls) == 3:
                raise Stop
            return False

        with stemma_torch.attach(self.model, tokens=1024) as attached:
            with self.assertRaises(Stop):
                self.model.generate(self.ids, max_new_tokens=9, stopping_criteria=[fails])
            self.assertEqual(attached.pool.cache.stats().leases, 0)
            self.model.generate(self.ids, max_new_tokens=2)
            self.assertEqual(attached.last.reused_tokens, [39])  # The prompt had been computed.

    def test_other_weights_find_nothing(self):
        ids = self.ids
        with stemma_torch.attach(self.model, tokens=2048) as attached:
            self.model.generate(ids, max_new_tokens=2)
            with torch.no_grad():
                self.model.model.layers[0].self_attn.k_proj.weight[0, 0] += 0.5
            wanted = models.plain(self.model, ids, max_new_tokens=8)
            out = self.model.generate(ids, do_sample=False, max_new_tokens=8)
            self.assertEqual(attached.last.reused_tokens, [0])
            self.assertTrue(torch.equal(out, wanted))
            self.model.generate(ids, max_new_tokens=2)
            self.assertEqual(attached.last.reused_tokens, [39])

    def test_a_digest_depends_on_every_weight_and_its_place(self):
        digest = stemma_torch.digest_of(self.model)
        self.assertEqual(digest, stemma_torch.digest_of(models.llama()))
        weight = self.model.model.layers[1].mlp.up_proj.weight
        with torch.no_grad():
            kept = weight.clone()
            weight[0], weight[1] = kept[1], kept[0]
            self.assertNotEqual(digest, stemma_torch.digest_of(self.model))
            weight.copy_(kept)
            weight[3, 5] += 1e-6
            self.assertNotEqual(digest, stemma_torch.digest_of(self.model))
            weight.copy_(kept)
        self.assertEqual(digest, stemma_torch.digest_of(self.model))

    def test_tenants_share_nothing(self):
        with stemma_torch.attach(self.model, tokens=2048, tenant_salt="a" * 16) as attached:
            self.model.generate(self.ids, max_new_tokens=2)
            mine = attached.scope()
        other = stemma_torch.make_scope(
            self.model, stemma_torch.probe(self.model), tenant_salt="b" * 16
        )
        self.assertNotEqual(mine, other)


if __name__ == "__main__":
    unittest.main()
