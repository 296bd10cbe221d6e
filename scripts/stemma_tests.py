# Usage: import stemma_tests   (from another script in this folder)
#
# Finds the tests that the sources define, and the executable of each. Mirrors the naming rules in
# cmake/StemmaTests.cmake.
import pathlib
import re

_MACRO = re.compile(
    r"^[ \t]*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.M)
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.S)


_CLASS_OR_TEST = re.compile(r"^class (\w+)|^    def (test_\w+)", re.M)


def find_python_tests(root):
    """{"Class.test_name", ...} over the tests of the Python package and of its plug-ins."""
    tests = set()
    for file in pathlib.Path(root).glob("python/tests/**/test_*.py"):
        inside = None
        for name, test in _CLASS_OR_TEST.findall(file.read_text(encoding="utf-8")):
            inside = name or inside
            if test:
                tests.add(f"{inside}.{test}")
    return tests


def find_tests(root):
    """{"Suite.Name": {executable, ...}} over all test sources under root."""
    root = pathlib.Path(root)
    sources = [(f, f.parent.name + "_test") for f in root.glob("src/*/*_test.cc")]
    sources += [(f, "server_test") for f in root.glob("src/server/*/**/*_test.cc")]
    sources += [(f, f"engine_{f.parent.name}_test") for f in root.glob("src/engine/*/*_test.cc")]
    sources += [(f, f"tier_{f.parent.name}_test") for f in root.glob("src/tier/*/*_test.cc")]
    sources += [(f, f"capi_{f.parent.name}_test") for f in root.glob("src/capi/*/*_test.cc")]
    sources += [(f, "mover_test") for f in root.glob("src/mover/cuda/*_test.cc")]
    sources += [(f, "dialect_test") for f in root.glob("src/dialect/*/*_test.cc")]
    sources += [(f, f"constrain_{f.parent.name}_test") for f in root.glob("src/constrain/*/*_test.cc")]
    named = {"sequences": "sequence_schedules_test"}
    sources += [(f, named.get(f.parent.name, f.parent.name + "_test"))
                for f in root.glob("tests/*/*.cc")
                if not (f.parent.name == "tiers" and f.name.startswith("redis_"))]
    sources += [(f, "redis_test") for f in root.glob("tests/tiers/redis_*.cc")]
    tests = {}
    for file, executable in sources:
        text = _COMMENT.sub(lambda m: m.group(1) or " ", file.read_text(encoding="utf-8"))
        for suite, name in _MACRO.findall(text):
            tests.setdefault(f"{suite}.{name}", set()).add(executable)
    return tests
