"""The Python code of the README runs."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    namespace: dict[str, object] = {}
    for block in blocks:
        code = block.replace("updates=10_000", "updates=20").replace("steps=5_000", "steps=500")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(code, str(README), "exec"), namespace)
    assert (tmp_path / "d.npz").exists()
    assert (tmp_path / "map.png").exists()
