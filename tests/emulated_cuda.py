"""A GPU emulated on the CPU: the kernels themselves, compiled by a C++ compiler."""

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


class EmulatedKernelModule:
    """The kernels in a shared library."""

    def __init__(self, macros: dict[str, int | str], shared_bytes: int) -> None:
        self._shared_bytes = shared_bytes
        # Dynamic shared memory is one global array here.
        source = KERNEL_SOURCE.read_text().replace("extern __shared__", "extern")
        entries = "".join(ENTRY.format(name=name) for name in KERNEL_NAMES)
        text = f"{HEADER.read_text()}\n{source}\nQuad space[{-(-shared_bytes // 16)}];\n{entries}"
        self._library = ctypes.CDLL(str(_compile_library(text, tuple(sorted(macros.items())))))

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        threads: int,
        *arguments: Any,
        shared_bytes: int = 0,
    ) -> None:
        assert shared_bytes <= self._shared_bytes
        values = [
            each.ctypes.data_as(ctypes.c_void_p) if _is_array(each) else each for each in arguments
        ]
        pointers = [
            ctypes.pointer(each) if isinstance(each, ctypes.c_void_p) else _pointer(each)
            for each in values
        ]
        addresses = (ctypes.c_void_p * len(pointers))(
            *(ctypes.cast(each, ctypes.c_void_p) for each in pointers)
        )
        x, y = (*grid, 1)[:2]
        self._library[f"start_{name}"](x, y, threads, addresses)


class EmulatedDevice:
    """A small GPU: few threads, and less shared memory than a row of some matrices needs."""

    arrays: Any = np
    name, num_multiprocessors, max_threads = "emulated", 3, 32

    def __init__(self, shared_bytes: int = 1024, free_bytes: float = 2.0**30) -> None:
        self.shared_bytes, self.free_bytes = shared_bytes, free_bytes

    def fetch(self, array: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        out[...] = array[..., : out.shape[-1]]
        return out

    def compile(self, **macros: int | str) -> EmulatedKernelModule:
        return EmulatedKernelModule(macros, self.shared_bytes)


def _is_array(each: Any) -> bool:
    return isinstance(each, np.ndarray) and each.ndim > 0


def _pointer(each: np.generic) -> Any:
    # A Python number has no C type, so that only NumPy scalars may be passed.
    assert isinstance(each, np.generic), type(each)
    return ctypes.pointer(TYPES[each.dtype.name](each.item()))


@functools.cache
def _compile_library(text: str, macros: tuple[tuple[str, int | str], ...]) -> Path:
    folder = Path(tempfile.gettempdir()) / "bisimetric-kernels"
    folder.mkdir(exist_ok=True)
    key = hashlib.sha256(f"{text}{macros}".encode()).hexdigest()[:16]
    library = folder / f"{key}.so"
    if not library.exists():
        source, beside = folder / f"{key}.cpp", folder / f"{key}.{id(text)}.part"
        source.write_text("".join(f"#define {n} {v}\n" for n, v in macros) + text)
        assert COMPILER is not None
        subprocess.run(
            [COMPILER, "-std=c++20", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-pthread",
             "-w", str(source), "-o", str(beside)],
            check=True,
        )  # fmt: skip
        beside.rename(library)
    return library
