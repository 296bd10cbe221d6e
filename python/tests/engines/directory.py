"""What the tests of all plug-ins ask of a disk's directory: its size, damage to it, and what
`stemma inspect` says."""

import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import unittest

ENGINES = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ENGINES.parent))

import stall  # noqa: E402,F401  (for the tests)


def used_bytes(path):
    """What its files take on the disk."""
    return sum(f.stat().st_blocks * 512 for f in pathlib.Path(path).rglob("*") if f.is_file())


def flip(path, needle):
    """Flips a bit where `needle` begins, in every file that has it. Returns how many there were."""
    flipped = 0
    for file in pathlib.Path(path).rglob("*"):
        if file.is_file() and (at := file.read_bytes().find(needle)) >= 0:
            with open(file, "r+b") as opened:
                opened.seek(at)
                opened.write(bytes([needle[0] ^ 1]))
            flipped += 1
    return flipped


def _program():
    named = os.environ.get("STEMMA_PROGRAM")
    if named:
        return named
    root = ENGINES.parents[2]
    built = [root / folder / "stemma" for folder in ("build", "build-dev")]
    return next((str(one) for one in built if os.access(one, os.X_OK)), shutil.which("stemma"))


def inspect(path, action="list"):
    """The exit code of `stemma inspect PATH ACTION` and what it says."""
    program = _program()
    if program is None:
        raise unittest.SkipTest("the program stemma is not built: cmake --preset release && cmake --build build")
    command = [program, "inspect", str(path), action, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise AssertionError(done.stderr)
    return done.returncode, json.loads(done.stdout)


def stats_until(stats, wanted):
    """Asks the store's first level for its counters until they are as wanted. For a minute; then
    returns what they are."""
    for _ in range(6000):
        (level, *_) = stats()["levels"]
        if wanted(level):
            break
        select.select([], [], [], 0.01)
    return level
