"""A GPU emulated on the CPU: the kernels themselves, compiled by a C++ compiler."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact.deterministic.problem import DeterministicProblem
from bisimetric.exact.gpu.cuda import KernelSource

COMPILER = shutil.which("g++") or shutil.which("clang++")
HEADER = Path(__file__).with_name("cuda") / "processor.h"
DYNAMIC_SHARED = r"extern __shared__ (\w+) (\w+)\[\];"
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
    """The kernels of a source in a shared library."""

    def __init__(
        self, source: KernelSource, macros: dict[str, int | str], shared_bytes: int
    ) -> None:
        self._shared_bytes = shared_bytes
        text = source.read()
        # Dynamic shared memory is one global array per declared name here.
        arrays = "".join(
            f"alignas(16) {kind} {name}[{-(-shared_bytes // 16)} * 16 / sizeof({kind})];\n"
            for kind, name in sorted(set(re.findall(DYNAMIC_SHARED, text)))
        )
        entries = "".join(ENTRY.format(name=name) for name in source.names)
        text = text.replace("extern __shared__", "extern")
        text = f"{HEADER.read_text()}\n{text}\n{arrays}{entries}"
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

    def compile(self, source: KernelSource, **macros: int | str) -> EmulatedKernelModule:
        return EmulatedKernelModule(source, macros, self.shared_bytes)


class EmulatedShardDevice(EmulatedDevice):
    """The same as a device of a sharded matrix, which JAX holds in the memory of the CPU."""

    reads_peers = True

    def activate(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def upload(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.array(array)

    def view(self, part: Any, dtype: Any) -> NDArray[Any]:
        if part.nbytes == 0:
            return np.zeros(1, dtype)
        data = (ctypes.c_byte * part.nbytes).from_address(part.unsafe_buffer_pointer())
        return np.frombuffer(data, dtype)

    def fetch(self, array: NDArray[Any]) -> NDArray[Any]:  # type: ignore[override]
        return array.copy()

    def synchronize(self) -> None:
        pass


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


def build_problem(
    states: int,
    actions: int,
    dtype: str = "float64",
    *,
    discount: float = 0.9,
    tolerance: float = 1e-9,
    num_classes: int = 1,
    seed: int = 0,
) -> DeterministicProblem:
    """A random deterministic problem, whose rewards have ties."""
    rng = np.random.default_rng(seed)
    successor = rng.integers(0, states, (actions, states)).astype(np.uint32)
    reward = rng.integers(0, 8, (actions, states)) / 4
    classes = rng.integers(0, num_classes, states) if num_classes > 1 else None
    diameter = float(np.ptp(reward)) / (1 - discount)
    return DeterministicProblem(
        successor, reward, discount, tolerance, np.dtype(dtype), classes, diameter
    )
