"""The end of a Mover in Python."""

import types
import unittest

from stemma import _mover


class TheEnd(unittest.TestCase):
    def ended(self, statuses):
        """How often destroy() was called, and what was logged, if it answers so."""
        answers, said = iter(statuses), []
        calls = []

        def destroy(address):
            calls.append(address)
            return next(answers)

        _mover._destroy(
            7,
            _call=lambda: types.SimpleNamespace(destroy=destroy),
            _sleep=lambda seconds: None,
            _warn=said.append,
        )
        return len(calls), said

    def test_a_busy_mover_is_ended_later(self):
        self.assertEqual(self.ended([0]), (1, []))
        self.assertEqual(self.ended([5, 5, 0]), (3, []))
        self.assertEqual(self.ended([9, 0]), (1, []))

    def test_one_that_stays_busy_is_reported(self):
        calls, said = self.ended([5] * 2000)
        self.assertEqual(calls, 1000)
        self.assertEqual(len(said), 1)


if __name__ == "__main__":
    unittest.main()
