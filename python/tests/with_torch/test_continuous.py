"""Continuous batching with Stemma's index: the same text, prefixes of window models, no leaks."""

import importlib.util
import logging
import os
import pathlib
import shutil
import unittest

import models
import torch
import transformers

import stemma

WHY = ""
try:
    from stemma.torch import continuous
except stemma.Unsupported as reason:
    continuous = None
    WHY = str(reason)

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRACE = pathlib.Path(os.environ.get("STEMMA_TRACES", ROOT.parent / "shared" / "traces"))
TRACE /= "agent_dev.jsonl.zst"
PAGE = 16
OLD = transformers.__version__.startswith("5.17.")
PAGE_SIZE = "block_size" if OLD else "page_size"

logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)


def settings(blocks=32, new_tokens=8, **more):
    """The configurations of transformers, small, as the arguments of attach()."""
    return {
        "generation": transformers.GenerationConfig(
            do_sample=False, max_new_tokens=new_tokens, eos_token_id=-1
        ),
        "batching": transformers.ContinuousBatchingConfig(
            **{PAGE_SIZE: PAGE, "num_blocks": blocks, "max_batch_tokens": 64, **more}
        ),
    }


def theirs(model, prompts, given):
    """What transformers' own continuous batching answers."""
    results = model.generate_batch(
        prompts,
        generation_config=given["generation"],
        continuous_batching_config=given["batching"],
    )
    return [one.generated_tokens for one in results.values()]


def ours(model, prompts, new_tokens=8):
    """What it answers while Stemma is attached."""
    results = model.generate_batch(prompts, max_new_tokens=new_tokens)
    return [one.generated_tokens for one in results.values()]


def alone(model, prompts, new_tokens=8):
    """What generate() answers to each prompt."""
    return [
        models.plain(model, torch.tensor([one]), max_new_tokens=new_tokens)[0, len(one) :].tolist()
        for one in prompts
    ]


def text(count, seed):
    return models.tokens(count, seed=seed)[0].tolist()


def index_of(attached):
    return attached.manager.cache.books.index


@unittest.skipIf(continuous is None, WHY)
class Continuous(unittest.TestCase):
    def at_rest(self, attached):
        """Nothing is held, and the books balance."""
        stats = index_of(attached).stats()
        self.assertEqual(stats.leases, 0)
        for group in stats.groups:
            self.assertEqual(group.draft_blocks, 0)
            self.assertEqual(group.evictable_blocks, group.cached_blocks)
            self.assertLessEqual(group.peak_used_blocks, group.capacity_blocks)
        cache = attached.manager.cache
        allocators = cache.group_cache_managers if OLD else cache.cache_allocators.values()
        self.assertTrue(all(not one.block_table for one in allocators))
        if OLD:
            self.assertGreater(cache.get_num_free_blocks(), cache.num_blocks - len(allocators))
        else:
            self.assertEqual(cache.compute_free_capacity(), 1.0)
        index_of(attached).check_invariants()

    def test_the_text_is_that_of_generate_and_of_their_own_batching(self):
        for make in models.ATTENTION:
            with self.subTest(make.__name__):
                model = make()
                head = text(70, 100)
                prompts = [head[: 23 * n] + text(9 + 17 * n, n) for n in range(6)]
                wanted = alone(model, prompts)
                self.assertEqual(theirs(model, prompts, settings()), wanted)
                with continuous.attach(model, **settings()) as attached:
                    self.assertEqual(ours(model, prompts), wanted)
                    self.assertEqual(ours(model, prompts), wanted)
                    self.at_rest(attached)

    def test_prompts_and_answers_are_found_again_also_in_a_window_model(self):
        for make in models.ATTENTION:
            with self.subTest(make.__name__):
                model = make()
                with continuous.attach(model, **settings()) as attached:
                    first = text(100, 1)
                    answer = ours(model, [first], 30)[0]
                    self.assertEqual(attached.counts()["reused_tokens"], 0)
                    # 129 positions of the first turn were computed; whole blocks of 16 are kept.
                    second = first + answer + text(20, 2)
                    self.assertEqual(ours(model, [second]), alone(model, [second]))
                    self.assertEqual(attached.counts()["reused_tokens"], 128)
                    # A prompt that parts far behind: its window was kept as well.
                    third = first[:50] + text(40, 3)
                    self.assertEqual(ours(model, [third]), alone(model, [third]))
                    self.assertEqual(attached.counts()["reused_tokens"], 128 + 48)
                    self.at_rest(attached)

    def test_their_own_batching_finds_nothing_in_a_window_model(self):
        model = models.gemma()
        given = settings()
        manager = model.init_continuous_batching(
            generation_config=given["generation"], continuous_batching_config=given["batching"]
        )
        manager.warmup()
        self.assertFalse(manager.batch_processor.cache.use_prefix_sharing)
        manager.destroy()

    def test_a_prompt_that_is_cached_whole_computes_its_last_block(self):
        model = models.llama()
        with continuous.attach(model, **settings()) as attached:
            prompt = text(64, 1)
            self.assertEqual(ours(model, [prompt]), ours(model, [prompt]))
            self.assertEqual(attached.counts()["reused_tokens"], 48)

    def test_little_memory_changes_no_text_and_evicts_by_need(self):
        for make in models.ATTENTION:
            with self.subTest(make.__name__):
                model = make()
                heads = [text(40, 50 + n) for n in range(5)]
                prompts = [heads[n % 5] + text(20, n) for n in range(20)]
                wanted = alone(model, prompts, 20)
                given = settings(blocks=14, new_tokens=20)
                self.assertEqual(theirs(model, prompts, given), wanted)
                with continuous.attach(model, **settings(blocks=14)) as attached:
                    self.assertEqual(ours(model, prompts, 20), wanted)
                    self.at_rest(attached)
                    if make is not models.mistral:  # Blocks of windows are not in this number.
                        self.assertGreater(index_of(attached).stats().evicted_blocks, 0)

    def test_requests_that_run_out_of_blocks_are_put_back_and_continue(self):
        for make in models.ATTENTION:
            with self.subTest(make.__name__):
                model = make()
                prompts = [text(30, n) for n in range(6)]
                wanted = alone(model, prompts, 60)
                # In 5.17 a block has one layer of this model, and not all three.
                blocks = 24 if OLD and make is models.gemma else 8
                with continuous.attach(model, **settings(blocks, safety_margin=0.0)) as attached:
                    self.assertEqual(ours(model, prompts, 60), wanted)
                    self.at_rest(attached)

    def test_a_prompt_that_can_never_fit_fails_as_it_does_with_theirs(self):
        model = models.llama()
        prompt = text(200, 1)

        def failure(manager):
            manager.start()
            manager.add_request(prompt, max_new_tokens=4)
            result = manager.get_result(timeout=60)
            manager.stop()
            return result.error if result else "nothing"

        given = settings(blocks=4)
        plain = model.init_continuous_batching(given["generation"], given["batching"])
        wanted = failure(plain)
        plain.destroy()
        with continuous.attach(model, **settings(blocks=4)) as attached:
            self.assertEqual(failure(attached.manager), wanted)
            self.assertIn("No requests can be scheduled", wanted)
            self.at_rest(attached)

    def test_cancelled_requests_leave_nothing_behind(self):
        for make in models.ATTENTION:
            with self.subTest(make.__name__):
                model = make()
                with continuous.attach(model, **settings()) as attached:
                    manager = model.init_continuous_batching()
                    manager.start()
                    for n in range(4):
                        manager.add_request(
                            text(30, n), f"long {n}", max_new_tokens=1000, streaming=True
                        )
                    self.assertIsNotNone(manager.get_result(timeout=60))  # They are running.
                    for n in range(4):
                        manager.cancel_request(f"long {n}")
                    prompt = text(40, 9)
                    manager.add_request(prompt, "short", max_new_tokens=4)
                    result = manager.get_result(timeout=60)
                    while result is not None and result.request_id != "short":
                        result = manager.get_result(timeout=60)
                    manager.stop()
                    self.assertEqual(result.generated_tokens, alone(model, [prompt], 4)[0])
                    self.at_rest(attached)

    def test_several_answers_to_a_prompt(self):
        for make in (models.llama, models.gemma):
            with self.subTest(make.__name__):
                model = make()
                prompts = [text(50, 1), text(40, 2)]
                given = settings()
                given["generation"].num_return_sequences = 3
                given["generation"].do_sample = False
                with continuous.attach(model, **given) as attached:
                    manager = model.init_continuous_batching()
                    manager.start()
                    manager.add_requests(prompts, max_new_tokens=8)
                    results = [manager.get_result(timeout=60) for _ in range(6)]
                    manager.stop()
                    for prompt, wanted in zip(prompts, alone(model, prompts)):
                        got = [r.generated_tokens for r in results if r.prompt_ids == prompt]
                        self.assertEqual(got, [wanted] * 3)
                    self.assertGreaterEqual(attached.counts()["reused_tokens"], 4 * 32)
                    self.at_rest(attached)

    @unittest.skipIf(OLD, "refused there")
    def test_without_sharing_it_reuses_nothing_and_keeps_nothing(self):
        model = models.gemma()
        prompts = [text(90, 1), text(90, 1)]
        with continuous.attach(model, **settings(allow_block_sharing=False)) as attached:
            self.assertEqual(ours(model, prompts), alone(model, prompts))
            self.assertEqual(attached.counts()["reused_tokens"], 0)
            self.assertEqual([g.cached_blocks for g in index_of(attached).stats().groups], [0, 0])
            self.at_rest(attached)

    def test_the_share_of_windows_divides_the_memory(self):
        model = models.gemma()
        prompt = text(100, 1)
        for share in (0.2, 0.8):
            with continuous.attach(model, window_share=share, **settings(64)) as attached:
                self.assertEqual(ours(model, [prompt]), alone(model, [prompt]))
                cache = attached.manager.cache
                taken = [g.capacity_blocks * g.block_bytes for g in cache.groups]
                windows = [g.attention is stemma.Attention.WINDOW for g in cache.groups]
                part = taken[windows.index(True)] / sum(taken)
                self.assertAlmostEqual(part, share, delta=0.03)

    def test_forget_and_detach(self):
        model = models.llama()
        prompt = text(64, 1)
        with continuous.attach(model, **settings()) as attached:
            ours(model, [prompt])
            attached.forget()
            ours(model, [prompt])
            self.assertEqual(attached.counts()["reused_tokens"], 0)
        self.assertIsNone(attached.manager.cache)
        given = settings()
        plain = model.init_continuous_batching(given["generation"], given["batching"])
        plain.warmup()
        self.assertEqual(type(plain.batch_processor.cache).__name__, "PagedAttentionCache")
        plain.destroy()


@unittest.skipIf(continuous is None, WHY)
class Refusals(unittest.TestCase):
    def refused(self, kind, words, model, **options):
        with self.assertRaisesRegex(kind, words):
            continuous.attach(model, **{**settings(), **options})
        self.assertFalse(hasattr(model, "_cached_continuous_batching_manager"))

    def test_models_with_running_states_are_refused_by_name(self):
        self.refused(stemma.Unsupported, "Lfm2ForCausalLM.* conv", models.lfm())
        self.refused(stemma.Unsupported, "linear_attention", models.qwen_next())

    def test_an_encoder_is_refused(self):
        config = transformers.T5Config(
            d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=96
        )
        model = transformers.T5ForConditionalGeneration(config)
        self.refused(stemma.Unsupported, "T5.* encoder", model)

    def test_settings_that_cannot_be(self):
        model = models.llama()
        for words, more in (("a page has 24 tokens", {PAGE_SIZE: 24}),
                            ("cpu_offload_space", {"cpu_offload_space": 1.0})):  # fmt: skip
            self.refused(stemma.InvalidArgument, words, model, **settings(**more))

    def test_a_share_that_is_no_part_and_too_little_memory(self):
        kinds = ["sliding_attention"] * 3 + ["full_attention"] * 2
        five = models.gemma(num_hidden_layers=5, layer_types=kinds)
        for model, words, options in (
            (models.gemma(), "window_share is 1.5", {"window_share": 1.5}),
            (five, "num_blocks", settings(blocks=1)),
        ):
            with continuous.attach(model, **{**settings(), **options}) as attached:
                with self.assertRaisesRegex(stemma.InvalidArgument, words):
                    attached.manager.warmup()

    def test_a_second_attach(self):
        model = models.llama()
        with continuous.attach(model, **settings()):
            with self.assertRaisesRegex(stemma.WrongState, "detach"):
                continuous.attach(model, **settings())


@unittest.skipIf(continuous is None, WHY)
class Versions(unittest.TestCase):
    def test_a_version_that_nobody_tried_is_refused_by_name(self):
        known = continuous.transformers.__version__
        self.addCleanup(setattr, continuous.transformers, "__version__", known)
        continuous.transformers.__version__ = "4.57.1"
        with self.assertRaisesRegex(stemma.Unsupported, "transformers 4.57.1 .*install one of"):
            continuous._check_version()


@unittest.skipIf(continuous is None, WHY)
@unittest.skipUnless(TRACE.exists(), "no traces; STEMMA_TRACES names their folder")
@unittest.skipUnless(shutil.which("zstd"), "no program zstd")
class Trace(unittest.TestCase):
    def test_the_hit_ratio_under_pressure_is_no_smaller_than_theirs(self):
        path = ROOT / "bench" / "torch" / "batching.py"
        spec = importlib.util.spec_from_file_location("batching", path)
        batching = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(batching)
        prompts = batching.trace(TRACE, 150)
        distinct, pages = batching.pages_of(prompts)
        for kind, least in (("full", 1), ("mixed", 0)):
            model = batching.model_of(kind)
            blocks = round(0.5 * distinct)
            wanted, theirs, _ = batching.replay(model, prompts, blocks, ours=False)
            answers, computed, _ = batching.replay(model, prompts, blocks, ours=True)
            self.assertEqual(answers, wanted)
            whole = sum(map(len, prompts))
            self.assertLessEqual(computed, theirs)
            self.assertLess(computed, whole)
            if not least:
                self.assertGreaterEqual(theirs, whole)  # They found nothing.


if __name__ == "__main__":
    unittest.main()
