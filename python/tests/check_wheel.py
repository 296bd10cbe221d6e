"""What a wheel promises: python3 check_wheel.py WHEEL [PYTHON FOLDER]

- It needs glibc 2.34 at most, and no other library than glibc's and libgcc_s.
- It has one tag for all versions of Python, and no static thread-local memory, so that any process
  can load it.
- It installs into a fresh virtual environment without a network, and works there: by the Python
  that runs this, which has numpy, or by PYTHON with the wheel of numpy that is in FOLDER.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

NEWEST = {"GLIBC": (2, 34), "GCC": (11, 0, 0), "GLIBCXX": (), "CXXABI": ()}
LIBRARIES = ["libstemma.so.0", "libstemma_mover.so.0", "libstemma_replay.so.0",
             "libstemma_tiers.so.0"]
ALLOWED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libstemma.so.0",
           "libpthread.so.0", "libdl.so.2"}
TRY = """
import numpy, stemma, stemma._library
assert "site-packages" in stemma.__file__, stemma.__file__
cache = stemma.PagedCache([stemma.Group(capacity_blocks=64)])
scope = stemma.Scope("weights")
with cache.lease(scope, numpy.arange(100)) as lease:
    lease.commit(100)
assert cache.lookup(scope, numpy.arange(100)).reused_tokens == 99
for library in ("stemma_tiers", "stemma_mover", "stemma_replay"):
    stemma._library.load(library)
import sys, sysconfig
free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
assert not free or not sys._is_gil_enabled(), "something switched the interpreter's lock on"
python = sys.version.split()[0] + ("t" if free else "")
print("check_wheel: works with Python", python, "and numpy", numpy.__version__)
"""


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def check_library(path):
    dynamic = output("readelf", "-dW", str(path))
    needed = set(re.findall(r"NEEDED.*\[(.+)\]", dynamic))
    assert needed <= ALLOWED, f"{path.name} needs {needed - ALLOWED}"
    assert "STATIC_TLS" not in dynamic, f"{path.name} has static thread-local memory"
    beside = "$ORIGIN" in dynamic or "libstemma.so.0" not in needed
    assert beside, f"{path.name} does not look beside itself"
    for name, version, symbol in re.findall(r"\(?(\w+)_(\d+(?:\.\d+)+)\)?\s+(\S+)$",
                                            output("objdump", "-T", str(path)), re.M):
        if name in NEWEST:
            found = tuple(map(int, version.split(".")))
            assert found <= NEWEST[name], f"{path.name} needs {symbol} of {name} {version}"


def install(wheel, folder, base=None, wheels=None):
    # Uses the system's numpy, so that nothing has to be downloaded, or the one in a folder.
    shares = [] if base else ["--system-site-packages"]
    subprocess.run([base or sys.executable, "-m", "venv", *shares, folder], check=True)
    python = os.path.join(folder, "bin", "python")
    if wheels is not None:
        subprocess.run([python, "-m", "pip", "install", "--no-index", "--find-links", wheels, "-q",
                        "numpy"], check=True)
    ours = ("PYTHONPATH", "STEMMA_LIBRARY_PATH")
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    subprocess.run([python, "-m", "pip", "install", "--no-index", "--no-deps", "-q", str(wheel)],
                   check=True, env=environment)
    print(output(python, "-W", "error", "-c", TRY, env=environment, cwd=folder), end="")


def main():
    wheel = pathlib.Path(sys.argv[1]).resolve()
    assert re.fullmatch(r"stemma-[\d.]+-py3-none-manylinux_2_34_\w+\.whl", wheel.name), wheel.name
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder)
        libraries = sorted(pathlib.Path(folder).rglob("*.so*"))
        assert sorted(library.name for library in libraries) == LIBRARIES, libraries
        for library in libraries:
            check_library(library)
    with tempfile.TemporaryDirectory() as folder:
        install(wheel, folder, *sys.argv[2:4])
    print(f"check_wheel: {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB")


main()
