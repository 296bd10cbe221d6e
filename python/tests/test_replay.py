"""Replay from Python: the same numbers as the program gives."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import stemma


def line(time, ids, **more):
    return json.dumps({"timestamp": time, "input_length": 512 * len(ids), "hash_ids": ids, **more}) + "\n"


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.trace = pathlib.Path(folder.name) / "trace.jsonl"
        self.trace.write_text(
            "".join(line(i, [1, 2, 3 + i % 5, 100 + i]) for i in range(50)), encoding="ascii"
        )

    def test_rows_have_what_the_trace_says(self):
        rows = stemma.replay(self.trace, policies=["lru", "infinite"], capacities=[10, "50%"])
        self.assertEqual([r["policy"] for r in rows], ["lru", "lru", "infinite"])
        self.assertEqual(rows[0]["capacity_blocks"], 10)
        self.assertEqual(rows[0]["block_refs"], 200)
        self.assertEqual(rows[-1]["block_hits"], 200 - 57)
        self.assertAlmostEqual(rows[0]["hit_ratio"], rows[0]["block_hits"] / 200)

    def test_errors_name_the_place(self):
        with self.assertRaisesRegex(stemma.Corrupt, "cannot be opened"):
            stemma.replay("/no/such/trace")
        with self.assertRaisesRegex(stemma.InvalidArgument, "there is no policy"):
            stemma.replay(self.trace, policies=["best"])
        with self.assertRaisesRegex(stemma.InvalidArgument, "--capacity is"):
            stemma.replay(self.trace, capacities=["much"])
        with self.assertRaises(stemma.StemmaError):
            stemma.replay("-")
        with open(self.trace, "a", encoding="ascii") as file:
            file.write("this is no line\n")
        with self.assertRaisesRegex(stemma.Corrupt, "line 51"):
            stemma.replay(self.trace)
        self.assertTrue(stemma.replay(self.trace, lenient=True))

    @unittest.skipUnless(os.environ.get("STEMMA_PROGRAM"), "the program is not here")
    def test_the_program_says_the_same(self):
        done = subprocess.run(
            [os.environ["STEMMA_PROGRAM"], "replay", str(self.trace), "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        theirs = json.loads(done.stdout)
        ours = stemma.replay(self.trace)
        self.assertEqual(len(theirs), len(ours))
        for a, b in zip(theirs, ours):
            for key in ("policy", "capacity_blocks", "block_hits", "evictions", "hints"):
                self.assertEqual(a[key], b[key])

    def test_pandas_takes_it(self):
        try:
            import pandas
        except ImportError:
            self.skipTest("pandas is not here")
        frame = pandas.DataFrame(stemma.replay(self.trace, policies=["lru"]))
        self.assertEqual(frame["policy"].unique().tolist(), ["lru"])
        self.assertEqual(frame["hit_ratio"].dtype.kind, "f")


if __name__ == "__main__":
    unittest.main()
