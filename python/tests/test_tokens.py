"""Tokens of every kind that engines have, and those that are none."""

import array
import unittest

import numpy as np

import stemma

try:
    import torch
except ImportError:
    torch = None

SCOPE = stemma.Scope("weights")
WORDS = np.array([5, 70000, 0, 2**31 - 1, 9] * 8, np.uint32)


class Tokens(unittest.TestCase):
    def setUp(self):
        self.cache = stemma.PagedCache([stemma.Group(capacity_blocks=64, block_tokens=4)])
        with self.cache.lease(SCOPE, WORDS) as lease:
            lease.commit(len(WORDS))

    def found(self, given):
        return self.cache.lookup(SCOPE, given).matched_tokens

    def test_all_kinds_of_numbers_are_the_same_tokens(self):
        read_only = WORDS.copy()
        read_only.flags.writeable = False
        for given in (
            WORDS,
            read_only,
            WORDS.astype(np.int32),
            WORDS.astype(np.int64),
            WORDS.astype(np.uint64),
            WORDS.astype(">u4"),
            WORDS.astype(">i8"),
            WORDS.astype(np.dtype("L")),
            WORDS.tolist(),
            tuple(WORDS.tolist()),
            array.array("I", WORDS.tolist()),
            memoryview(WORDS),
            np.repeat(WORDS, 2)[::2],
            np.repeat(WORDS.astype(np.int64), 3)[::3],
        ):
            with self.subTest(kind=type(given), dtype=getattr(given, "dtype", None)):
                self.assertEqual(self.found(given), len(WORDS))
        for small in (np.int8, np.uint8, np.int16, np.uint16):
            self.assertEqual(self.found(WORDS[:1].astype(small)), 1)

    def test_long_prompts_of_64_bits(self):
        prompt = np.arange(100_000, dtype=np.int64)
        cache = stemma.PagedCache([stemma.Group(capacity_blocks=8192)])
        with cache.lease(SCOPE, prompt) as lease:
            lease.commit(lease.length)
        self.assertEqual(cache.lookup(SCOPE, prompt.astype(np.uint32)).matched_tokens, 100_000)
        # Memory for narrowed tokens is reused for prompts of other lengths.
        for length in (3, 99_999, 17):
            self.assertEqual(cache.lookup(SCOPE, prompt[:length]).matched_tokens, length)

    def test_numbers_that_are_no_tokens_are_named(self):
        for kind in (np.int32, np.int64):
            bad = WORDS.astype(kind)
            bad[7] = -1
            with self.assertRaises(ValueError) as raised:
                self.found(bad)
            self.assertIsInstance(raised.exception, stemma.StemmaError)
            self.assertEqual(raised.exception.value, 7)
        for kind, value in ((np.int64, 2**31), (np.uint64, 2**63), (np.uint32, 2**31), (np.int64, 2**40)):
            bad = WORDS.astype(kind)
            bad[3] = value
            with self.assertRaises(stemma.StemmaError):
                self.found(bad)
        for bad in ([1, -2], [2**70], [1, 2**33]):
            with self.assertRaises((stemma.StemmaError, TypeError)):
                self.found(bad)

    def test_what_holds_no_tokens_is_a_type_error(self):
        for bad in (
            WORDS.astype(float),
            WORDS > 3,
            "text",
            b"bytes",
            None,
            7,
            {1: 2},
            [1.5],
            ["a"],
            [[1, 2], [3]],
            WORDS.reshape(2, -1),
            np.array(5),
            object(),
            np.array(["a"]),
            np.zeros(3, complex),
            np.zeros(3, "datetime64[s]"),
            np.zeros(3, [("a", "i4")]),
        ):
            with self.subTest(kind=repr(bad)[:40]), self.assertRaises(TypeError):
                self.found(bad)

    def test_an_empty_prompt_is_judged_by_the_cache(self):
        for empty in ([], np.empty(0, np.uint32), np.empty(0, np.int64)):
            self.assertEqual(self.cache.lookup(SCOPE, empty).matched_tokens, 0)

    def test_arrays_may_change_their_size_between_calls(self):
        grown = WORDS.copy()
        self.assertEqual(self.found(grown), 40)
        grown.resize(100_000, refcheck=False)
        self.assertEqual(self.found(grown), 40)
        grown.resize(8, refcheck=False)
        self.assertEqual(self.found(grown), 8)
        words = array.array("I", WORDS.tolist())
        del words[10:]
        self.assertEqual(self.found(words), 10)
        view = memoryview(WORDS)
        view.release()
        with self.assertRaises((TypeError, ValueError)):
            self.found(view)

    @unittest.skipIf(torch is None, "torch is not here")
    def test_tensors(self):
        for dtype in (torch.int64, torch.int32):
            tensor = torch.from_numpy(WORDS.astype(np.int64)).to(dtype)
            self.assertEqual(self.found(tensor), 40)
            self.assertEqual(self.found(torch.repeat_interleave(tensor, 2)[::2]), 40)
            self.assertEqual(self.found(tensor[4:]), 0)
            tensor[2] = -5
            with self.assertRaises(stemma.StemmaError):
                self.found(tensor)
        for bad in (torch.zeros(3), torch.zeros(2, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.bool)):
            with self.assertRaises(TypeError):
                self.found(bad)
        with self.assertRaises(TypeError):
            self.found(torch.zeros(3, dtype=torch.int64, device="meta"))
        with self.assertRaises(TypeError):
            self.found(torch.zeros(3, dtype=torch.int64).to_sparse())

    @unittest.skipIf(torch is None, "torch is not here")
    def test_tensors_whose_memory_was_freed_are_refused(self):
        for size in (0, 16):
            for dtype in (torch.int64, torch.int32):
                tensor = torch.zeros(100_000, dtype=dtype)
                tensor.untyped_storage().resize_(size)
                with self.assertRaises(stemma.InvalidArgument):
                    self.found(tensor)
        with self.cache.lease(SCOPE, WORDS) as lease:
            out = torch.zeros(64, dtype=torch.int32)
            self.assertEqual(lease.block_table(out=out), 10)
            self.assertEqual(out[:10].tolist(), lease.block_table().tolist())
            out.untyped_storage().resize_(0)
            with self.assertRaises(stemma.InvalidArgument):
                lease.block_table(out=out)


if __name__ == "__main__":
    unittest.main()
