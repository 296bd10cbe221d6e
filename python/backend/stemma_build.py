"""Builds the wheel: the PEP 517 backend of the package, and `make wheel`.

    python3 stemma_build.py FOLDER      writes the wheel into FOLDER and prints its path

It runs CMake on the source tree that the package lies in, and packs the shared libraries with the
Python files. It needs CMake, a C++ compiler and ninja or make, nothing from Python but its standard
library, and no network. STEMMA_PYTHON_BUILD names the build folder (build-wheel in the source
tree), and STEMMA_PYTHON_LIBRARIES a folder with libraries that are built already.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent
LIBRARIES = (
    "libstemma.so.0", "libstemma_tiers.so.0", "libstemma_mover.so.0", "libstemma_replay.so.0"
)  # fmt: skip
NEWEST_GLIBC = (2, 34)
EPOCH = (1980, 1, 1, 0, 0, 0)  # The same tree gives the same wheel.


def version() -> str:
    """The version that the package says it has."""
    text = (HERE / "stemma" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.M)
    assert found is not None
    return found.group(1)


def build_libraries() -> pathlib.Path:
    """Runs CMake. Returns the folder with the libraries."""
    ready = os.environ.get("STEMMA_PYTHON_LIBRARIES")
    if ready:
        return pathlib.Path(ready)
    if not (ROOT / "CMakeLists.txt").is_file():
        raise SystemExit(
            f"stemma_build: {ROOT} is not Stemma's source tree; build from a clone of it"
        )
    if shutil.which("cmake") is None:
        raise SystemExit(
            "stemma_build: cmake is missing (3.25 or newer; apt install cmake g++ ninja-build)"
        )
    build = pathlib.Path(os.environ.get("STEMMA_PYTHON_BUILD") or ROOT / "build-wheel")
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"]
    if not (build / "CMakeCache.txt").exists() and shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    # Without IPsec MB, which few systems have: sealing uses the OpenSSL in the wheel.
    for option in (
        "DEVELOPER_MODE=OFF", "INSTALL=OFF", "PYTHON=ON", "PORTABLE=ON", "UNITY=ON", "IPSEC_MB=OFF"
    ):  # fmt: skip
        configure.append(f"-DSTEMMA_{option}")
    # Its output goes to standard error: a backend's standard output is for its front end.
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 2)
    for command in (
        configure,
        ["cmake", "--build", str(build), "--target", "python_libraries", "-j", jobs],
    ):
        subprocess.run(command, check=True, stdout=sys.stderr)
    return build


def glibc_needed(library: pathlib.Path) -> tuple[int, ...]:
    """The newest version of glibc whose symbols a library needs, read from its table of
    versions."""
    found = re.findall(rb"GLIBC_(\d+(?:\.\d+)+)\0", library.read_bytes())
    return max((tuple(int(part) for part in v.split(b".")) for v in found), default=(0,))


def tag(libraries: list[pathlib.Path]) -> str:
    """The wheel's tag. Says so and stops where a library needs a newer system than we promise."""
    machine = os.uname().machine
    for library in libraries:
        needed = glibc_needed(library)
        if needed > NEWEST_GLIBC:
            name = ".".join(map(str, needed))
            print(f"stemma_build: {library.name} needs glibc {name}, so the wheel is for this "
                  f"system only (linux_{machine})", file=sys.stderr)
            return f"py3-none-linux_{machine}"
    return f"py3-none-manylinux_{NEWEST_GLIBC[0]}_{NEWEST_GLIBC[1]}_{machine}"


def metadata() -> str:
    """METADATA of the wheel; pyproject.toml says the same to front ends."""
    lines = [
        "Metadata-Version: 2.1",
        "Name: stemma",
        f"Version: {version()}",
        "Summary: The KV cache of LLM engines: an index of prompts, and storage under engines",
        "License: Apache-2.0",
        "Requires-Python: >=3.9",
        "Requires-Dist: numpy>=1.22",
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(encoding="utf-8"),
    ]
    return "\n".join(lines)


class Wheel:
    """A wheel that is being written; keeps the list of what is in it."""

    def __init__(self, path: pathlib.Path, info: str) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._info = info
        self._records: list[str] = []

    def add(self, name: str, content: bytes) -> None:
        entry = zipfile.ZipInfo(name, EPOCH)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
        self._zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self._records.append(f"{name},sha256={digest},{len(content)}")

    def close(self) -> None:
        record = f"{self._info}/RECORD"
        self._records.append(f"{record},,")
        self.add_last(record, "\n".join(self._records) + "\n")
        self._zip.close()

    def add_last(self, name: str, text: str) -> None:
        entry = zipfile.ZipInfo(name, EPOCH)
        entry.external_attr = 0o644 << 16
        self._zip.writestr(entry, text)


def python_files() -> list[pathlib.Path]:
    """The package's own files, without what Python or an editor left there."""
    files = [*(HERE / "stemma").rglob("*.py"), HERE / "stemma" / "py.typed"]
    return sorted(file for file in files if "_lib" not in file.parts)


def write(folder: pathlib.Path, editable: bool = False) -> str:
    """Writes the wheel into `folder` and returns its name."""
    libraries = build_libraries()
    found = [(libraries / name).resolve() for name in LIBRARIES]
    missing = [name for name, path in zip(LIBRARIES, found) if not path.exists()]
    if missing:
        raise SystemExit(f"stemma_build: {libraries} has no {' and no '.join(missing)}; "
                         "libxxhash-dev, liburing-dev, libssl-dev and libzstd-dev must be there")
    info = f"stemma-{version()}.dist-info"
    label = tag(found)
    name = f"stemma-{version()}-{label}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = Wheel(folder / name, info)
    if editable:
        wheel.add("stemma.pth", f"{HERE}\n".encode())
        link(libraries)
    else:
        for file in python_files():
            wheel.add(file.relative_to(HERE).as_posix(), file.read_bytes())
        for short, path in zip(LIBRARIES, found):
            wheel.add(f"stemma/_lib/{short}", path.read_bytes())
    wheel.add(f"{info}/METADATA", metadata().encode())
    text = f"Wheel-Version: 1.0\nGenerator: stemma_build\nRoot-Is-Purelib: false\nTag: {label}\n"
    wheel.add(f"{info}/WHEEL", text.encode())
    wheel.add(f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes())
    wheel.close()
    return name


def link(libraries: pathlib.Path) -> None:
    """For an editable install: the package's own folder finds the libraries of the build."""
    target = HERE / "stemma" / "_lib"
    target.mkdir(exist_ok=True)
    for name in LIBRARIES:
        (target / name).unlink(missing_ok=True)
        (target / name).symlink_to((libraries / name).resolve())


# ---- What a front end such as pip calls
# ------------------------------------------------------------


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    return []


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: object = None, metadata_directory: object = None
) -> str:
    return write(pathlib.Path(wheel_directory))


def build_editable(
    wheel_directory: str, config_settings: object = None, metadata_directory: object = None
) -> str:
    return write(pathlib.Path(wheel_directory), editable=True)


def build_sdist(sdist_directory: str, config_settings: object = None) -> str:
    raise SystemExit(
        "stemma_build: there is no source distribution; install from a clone: pip install ./python"
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[1])
    print(out / write(out))
