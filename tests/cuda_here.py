"""A GPU that the processor plays: the kernels themselves, compiled by a C++ compiler."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact.gpu.cuda import KERNEL_NAMES, KERNEL_SOURCE

COMPILER = shutil.which("g++") or shutil.which("clang++")
HEADER = Path(__file__).with_name("cuda") / "processor.h"
TYPES: dict[str, Any] = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
ENTRY = """
extern "C" void start_{name}(unsigned x, unsigned y, unsigned threads, void** given) {{
    gridDim = {{x, y}};
    blockDim = {{threads, 1}};
    start({name}, given);
}}
"""


class Program:
    """The kernels in a shared library."""

    def __init__(self, defined: dict[str, int | str], shared: int) -> None:
        self._shared = shared
        # Shared memory whose size is chosen at the start is one array here.
        source = KERNEL_SOURCE.read_text().replace("extern __shared__", "extern")
        entries = "".join(ENTRY.format(name=name) for name in KERNEL_NAMES)
        text = f"{HEADER.read_text()}\n{source}\nQuad space[{-(-shared // 16)}];\n{entries}"
        self._library = ctypes.CDLL(str(_compiled(text, tuple(sorted(defined.items())))))

    def launch(
        self, name: str, grid: tuple[int, ...], threads: int, *given: Any, shared: int = 0
    ) -> None:
        assert shared <= self._shared
        kept = [each.ctypes.data_as(ctypes.c_void_p) if _many(each) else each for each in given]
        held = [
            ctypes.pointer(each) if isinstance(each, ctypes.c_void_p) else _pointer(each)
            for each in kept
        ]
        places = (ctypes.c_void_p * len(held))(
            *(ctypes.cast(each, ctypes.c_void_p) for each in held)
        )
        x, y = (*grid, 1)[:2]
        self._library[f"start_{name}"](x, y, threads, places)


class Device:
    """A small GPU: few threads, and less shared memory than a row of some tables needs."""

    arrays: Any = np
    name, processors, threads = "a processor", 3, 32

    def __init__(self, shared: int = 1024, free: float = 2.0**30) -> None:
        self.shared, self.free = shared, free

    def fetch(self, array: NDArray[Any], to: NDArray[Any]) -> None:
        to[...] = array[..., : to.shape[-1]]

    def program(self, **defined: int | str) -> Program:
        return Program(defined, self.shared)


def _many(each: Any) -> bool:
    return isinstance(each, np.ndarray) and each.ndim > 0


def _pointer(each: np.generic) -> Any:
    # Only numbers of the types that C has may be passed: a Python number has none.
    assert isinstance(each, np.generic), type(each)
    return ctypes.pointer(TYPES[each.dtype.name](each.item()))


@functools.cache
def _compiled(text: str, defined: tuple[tuple[str, int | str], ...]) -> Path:
    folder = Path(tempfile.gettempdir()) / "bisimetric-kernels"
    folder.mkdir(exist_ok=True)
    macros = [f"-D{name}={value}" for name, value in defined]
    key = hashlib.sha256(f"{text}{macros}".encode()).hexdigest()[:16]
    library = folder / f"{key}.so"
    if not library.exists():
        source, beside = folder / f"{key}.cpp", folder / f"{key}.{id(text)}.part"
        source.write_text("".join(f"#define {n} {v}\n" for n, v in defined) + text)
        assert COMPILER is not None
        subprocess.run(
            [COMPILER, "-std=c++20", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-pthread",
             "-w", str(source), "-o", str(beside)],
            check=True,
        )  # fmt: skip
        beside.rename(library)
    return library
