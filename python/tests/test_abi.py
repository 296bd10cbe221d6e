"""The structs that Python declares are those that the C compiler sees (tests/package/abi.txt)."""

import ctypes
import pathlib
import re
import unittest

from stemma import _mover, _store_structs, _structs, _tiers_structs

RECORDED = pathlib.Path(__file__).resolve().parents[2] / "tests" / "package"
NAMES = {
    "Version": "version_numbers",
    "ScopeDigest": "scope",
}


def snake(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def recorded(*files):
    """Each struct of the recorded ABI: its size, and its fields with their places and sizes."""
    structs = {}
    for file in files:
        for line in (RECORDED / file).read_text().splitlines():
            if found := re.match(r"struct stemma_(\w+): (\d+) bytes", line):
                fields = []
                structs[found.group(1)] = (int(found.group(2)), fields)
            elif found := re.match(r"  .*?(\w+)(?:\)\(.*\)|\[\w+\])? at (\d+), (\d+) bytes", line):
                fields.append(tuple(map(int, found.groups()[1:])))
    return structs


def declared(module):
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and "_fields_" in vars(kind):
            yield NAMES.get(name, snake(name)), kind


class Abi(unittest.TestCase):
    def check(self, module, known, skip=()):
        found = 0
        for name, kind in declared(module):
            if name in skip:
                continue
            size, fields = known[name]
            ours = [(getattr(kind, f[0]).offset, getattr(kind, f[0]).size) for f in kind._fields_]
            self.assertEqual(ours, fields, name)
            self.assertEqual(ctypes.sizeof(kind), size, name)
            found += 1
        return found

    def test_structs_are_those_of_the_c_header(self):
        known = recorded("abi.txt")
        self.assertGreater(self.check(_structs, known, skip={"replay_row"}), 25)

    def test_structs_of_the_store_are_those_of_the_c_header(self):
        known = recorded("abi.txt", "abi_tiers.txt")
        self.assertGreater(self.check(_store_structs, known), 8)

    def test_structs_of_tiers_are_those_of_the_c_header(self):
        known = recorded("abi.txt", "abi_tiers.txt")
        self.assertEqual(self.check(_tiers_structs, known, skip={"sized"}), 3)

    def test_structs_of_the_mover_are_those_of_the_c_header(self):
        known, found = recorded("abi.txt", "abi_mover.txt"), 0
        for name, kind in declared(_mover):
            size, fields = known[name]
            ours = [(getattr(kind, f[0]).offset, getattr(kind, f[0]).size) for f in kind._fields_]
            # The record has one line, with the last one's place, for fields that one line declares.
            self.assertLessEqual(set(fields), set(ours), name)
            self.assertEqual(ctypes.sizeof(kind), size, name)
            found += 1
        self.assertEqual(found, 5)

    def test_constants_are_those_of_the_c_header(self):
        text = (RECORDED / "abi.txt").read_text()
        for name, value in (("MAX_GROUPS", _structs.MAX_GROUPS),):
            self.assertRegex(text, rf"STEMMA_{name} = {value}\b")


if __name__ == "__main__":
    unittest.main()
