"""Which reader loads which name, and names that no reader accepts."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bisimetric.errors import InputError
from bisimetric_atari import agents


def test_the_protocol_imports_neither_jax_nor_torch_nor_ale() -> None:
    code = (
        "import sys, bisimetric_atari.agents as a; a.Agent; a.load; print({*sys.modules} & {HEAVY})"
    )
    heavy = {"jax", "torch", "ale_py", "gymnasium", "matplotlib"}
    done = subprocess.run(
        [sys.executable, "-c", code.replace("{HEAVY}", repr(heavy))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"


def test_an_unknown_game_raises_first() -> None:
    with pytest.raises(InputError, match="there is no game 'Pung'; did you mean 'Pong'"):
        agents.load("nothing.zip", "Pung")


@pytest.mark.parametrize(
    "name", ["nothing.zip", "nothing.safetensors", "ckpt.199", ":", "a:", ":a"]
)
def test_a_missing_file_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"agents: there is no file '{name}'; name a"):
        agents.load(name, "Pong")


def test_a_folder_is_no_agent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a folder; name a file\.$"):
        agents.load(tmp_path, "Pong")
    (tmp_path / "ckpt.3").touch()
    with pytest.raises(InputError, match=r"is a folder; name a file, a checkpoint in it\.$"):
        agents.load(tmp_path, "Pong")


def test_files_of_other_kinds_raise(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "weights.pth", "w") as file:
        file.writestr("data.pkl", b"")
    (tmp_path / "agent.py").write_text("x = 1")
    for name in ("weights.pth", "agent.py"):
        with pytest.raises(InputError, match=rf"{name} holds no readable agent; n"):
            agents.load(tmp_path / name, "Pong")


def test_a_damaged_agent_raises(tmp_path: Path) -> None:
    (tmp_path / "pong.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(InputError, match=r"pong\.safetensors"):
        agents.load(tmp_path / "pong.safetensors", "Pong")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "pong.zip").touch()
    with pytest.raises(InputError, match=r"torch is not installed; .*'bisimetric-atari\[sb3\]'"):
        agents.load(tmp_path / "pong.zip", "Pong")


@pytest.mark.parametrize("name", ["ckpt.1", "pong.safetensors"])
def test_missing_jax_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in list(sys.modules):
        if module.startswith(
            ("bisimetric_atari.agents.rainbow", "bisimetric_atari.agents.dopamine")
        ):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "jax", None)
    (tmp_path / name).touch()
    with pytest.raises(
        InputError, match=rf"{name}: jax is not installed; pip install bisimetric-atari"
    ):
        agents.load(tmp_path / name, "Pong")
