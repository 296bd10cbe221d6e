"""Finds the shared libraries and loads them.

They lie beside this file in ``_lib`` when the package was installed from a wheel. The environment
variable ``STEMMA_LIBRARY_PATH`` names another folder to take them from, such as a build folder.

Each library is loaded twice over one mapping. A call through ``quick`` keeps the interpreter's
lock: that suits calls that take microseconds and never wait. A call through ``waiting`` lets other
Python threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import NamedTuple

_HERE = pathlib.Path(__file__).resolve().parent / "_lib"


class Library(NamedTuple):
    """One shared library, for calls that keep the interpreter's lock and for calls that do not."""

    path: str
    quick: ctypes.PyDLL
    waiting: ctypes.CDLL


def folder() -> pathlib.Path:
    """The folder that the libraries are loaded from."""
    chosen = os.environ.get("STEMMA_LIBRARY_PATH")
    return pathlib.Path(chosen).resolve() if chosen else _HERE


def load(name: str) -> Library:
    """Loads lib<name>.so. Raises ImportError with the place that was looked in."""
    for file in (f"lib{name}.so.0", f"lib{name}.so"):
        path = folder() / file
        if path.exists():
            try:
                return Library(str(path), ctypes.PyDLL(str(path)), ctypes.CDLL(str(path)))
            except OSError as error:
                raise ImportError(f"stemma: {path} cannot be loaded: {error}") from error
    raise ImportError(
        f"stemma: lib{name}.so.0 is not in {folder()}. Install the wheel (make wheel, then "
        "pip install build/wheels/stemma-*.whl), or set STEMMA_LIBRARY_PATH to the folder of a "
        "build."
    )
