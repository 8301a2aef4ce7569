"""Writing files: whole or not at all, only over regular files, through symbolic links."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import Transitions, exact, explorer, worlds
from bisimetric._io import name_write_errors, require_writable, write_atomically, write_record

Save = Callable[[Path], Any]


def save_distance(path: Path) -> None:
    exact.bisimulation(worlds.load("pessimism")).save(path)


def save_transitions(path: Path) -> None:
    Transitions([0], [0], [1.0], [1], [True]).save(path)


def save_page(path: Path) -> None:
    explorer.save_page(explorer.render_page(exact.bisimulation(worlds.load("pessimism"))), path)


def save_picture(path: Path) -> None:
    from bisimetric import views

    d = exact.bisimulation(worlds.load("mirrored-rooms"))
    views.save_figure(views.plot_heatmap(d), path)


def save_weights(path: Path) -> None:
    from bisimetric.learned.files import write_tensors

    write_tensors(path, {"w": np.zeros(3)}, {"format": "none"})


def save_store(path: Path) -> None:
    exact.sharded.bisimulation(worlds.load("pessimism"), output=path)


def save_run(path: Path) -> None:
    from bisimetric.sampled import SampledRun

    SampledRun("bisimulation", worlds.load("pessimism")).save(path)


WRITERS = {
    "d.npz": save_distance,
    "t.npz": save_transitions,
    "page.html": save_page,
    "map.png": save_picture,
    "w.safetensors": save_weights,
    "run.npz": save_run,
    "d.zarr": save_store,
}


@pytest.fixture(params=WRITERS, ids=str)
def writer(request: pytest.FixtureRequest) -> tuple[str, Save]:
    return request.param, WRITERS[request.param]


def kind_of(path: Path) -> int:
    return stat.S_IFMT(os.lstat(path).st_mode)


@pytest.mark.parametrize("what", ["pipe", "socket", "link to a device", "link to a pipe"])
def test_no_writer_replaces_what_is_no_regular_file(
    tmp_path: Path, writer: tuple[str, Save], what: str
) -> None:
    name, save = writer
    path = tmp_path / name
    if what == "pipe":
        os.mkfifo(path)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            here = os.getcwd()
            os.chdir(tmp_path)  # The path of a socket is short.
            bound.bind(name)
            os.chdir(here)
    elif what == "link to a device":
        path.symlink_to(os.devnull)
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    before = kind_of(path), sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match=rf"^cannot write \S*{name}: it is .*regular file") as caught:
        save(path)
    assert "\n" not in str(caught.value)
    assert (kind_of(path), sorted(os.listdir(tmp_path))) == before
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("what", ["file", "nothing", "chain"])
def test_every_writer_writes_through_links(
    tmp_path: Path, writer: tuple[str, Save], what: str
) -> None:
    name, save = writer
    (tmp_path / "links").mkdir()
    (tmp_path / "data").mkdir()
    target, path = tmp_path / "data" / name, tmp_path / "links" / name
    if what == "chain":
        (tmp_path / "links" / "second").symlink_to("../data/" + name)
        path.symlink_to("second")
    else:
        path.symlink_to("../data/" + name)
    if what == "file":
        target.write_text("old")
    save(path)
    assert path.is_symlink()
    assert os.listdir(tmp_path / "data") == [name]
    assert path.resolve() == target
    if name.endswith(".zarr"):
        assert (target / "about.npz").is_file()
        save(path)
        assert path.is_symlink()
        assert os.listdir(tmp_path / "data") == [name]
    else:
        assert target.stat().st_size > 10
        assert kind_of(target) == stat.S_IFREG


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("folder", "it is a folder"),
        ("none/file", "make the folder"),
        ("loop", "symbolic links"),
        ("link to none", "make the folder"),
        ("file/below", "[Nn]ot a directory"),
        ("n" * 300, "too long"),
    ],
)
def test_places_that_cannot_be_written(tmp_path: Path, what: str, complaint: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link to none").symlink_to("none/file")
    before = sorted(os.listdir(tmp_path))
    for write in (require_writable, lambda path: write_record(path, {}, {})):
        with pytest.raises(OSError, match=f"^cannot write .*{complaint}"):
            write(tmp_path / what)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_null_byte_in_a_name() -> None:
    with pytest.raises(OSError, match=r"^cannot write .*null"):
        require_writable("a\0b")


def test_a_target_that_changes_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out"

    def write() -> None:
        with write_atomically(path) as beside:
            beside.write_text("whole")
            os.mkfifo(path)

    with pytest.raises(OSError, match="it is a pipe"):
        write()
    assert os.listdir(tmp_path) == ["out"]
    assert kind_of(path) == stat.S_IFIFO


def test_long_names_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    with write_atomically(path) as beside:
        beside.write_text("whole")
    assert path.read_text() == "whole"


LIMITED = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from tests import test_io_files as test_files
name = sys.argv[1]
save = test_files.WRITERS[name]
if name != "d.zarr":
    # What is compiled and cached on the way is written before the limit.
    save(Path("first-" + name))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    save(Path(name))
except OSError as error:
    print(type(error).__name__, error.errno, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 100])
@pytest.mark.parametrize("name", [name for name in WRITERS if name != "d.zarr"])
def test_a_full_disk_names_the_file_and_leaves_nothing(
    tmp_path: Path, name: str, limit: int
) -> None:
    """A limit on the size of files stands in for a full disk: writes fail in the middle."""
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, name, str(limit)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert f"cannot write {name}: " in run.stdout
    if name != "film.mp4":
        assert run.stdout.startswith(f"OSError {errno.EFBIG} ")
    assert sorted(os.listdir(tmp_path)) == [f"first-{name}"]


def test_a_store_on_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zarr

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zarr.Array, "__setitem__", full)
    path = tmp_path / "d.zarr"
    with pytest.raises(OSError, match=r"^cannot write \S*/d\.zarr: No space left on device"):
        save_store(path)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_errors_of_the_system_keep_their_number_and_name_the_file(
    tmp_path: Path, number: int
) -> None:
    with (
        pytest.raises(OSError, match=r"^cannot write .*out: ") as caught,
        write_atomically(tmp_path / "out"),
    ):
        raise OSError(number, os.strerror(number))
    assert caught.value.errno == number
    assert not os.listdir(tmp_path)


def test_errors_that_name_the_file_beside_name_the_place_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("out", tmp_path / "out"):
        with (
            pytest.raises(OSError, match=r"^cannot write \S*out: No space left on device\.$"),
            write_atomically(path) as beside,
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(beside))


def test_errors_hidden_by_others_are_found(tmp_path: Path) -> None:
    def close() -> None:
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            raise ValueError("the archive cannot be closed")

    named = r"^cannot write x: No space left on device\.$"
    with pytest.raises(OSError, match=named), name_write_errors("x", tmp_path):
        close()
    with pytest.raises(OSError, match=named), name_write_errors("x", tmp_path):
        raise RuntimeError("Error while serializing: I/O error: full (os error 28)")


def test_other_errors_stay_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, name_write_errors("x", tmp_path):
        open("/none/other")  # noqa: SIM115
    assert caught.value.filename == "/none/other"
    with pytest.raises(ValueError, match="no OSError"), name_write_errors("x", tmp_path):
        raise ValueError("no OSError")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0
