"""Videos of games: what their panels show, and files that are whole or not there."""

from __future__ import annotations

import importlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.games import Episode, play
from bisimetric.views.colours import SOURCE
from bisimetric.views.games import films, ranked, ranked_video, video
from bisimetric.views.games.canvas import CAPTION, MARGIN, enlarged, words
from bisimetric.views.games.measured import measured
from bisimetric.views.games.video import PLOT, panels
from gamers import Gamer

STEPS = 60
WIDE, HIGH = 320, 420
LOWER = 2 * CAPTION + HIGH + MARGIN
RIGHT = 2 * MARGIN + WIDE


@pytest.fixture(scope="module")
def pong() -> Episode:
    return play("Pong", Gamer("Pong", patience=8), most=STEPS)


@pytest.fixture(scope="module")
def distances(pong: Episode) -> NDArray[np.float64]:
    bright = pong.features[:, :-1]
    return np.asarray(np.abs(bright - bright[0]).sum(axis=1), np.float64)


def read(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """All frames of a video of this shape, (n, height, width, 3)."""
    told = [films.encoder(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24"]
    raw = subprocess.run([*told, "-"], capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, *shape)


def pictures(count: int, *, fails: BaseException | None = None) -> Iterator[NDArray[np.uint8]]:
    for each in range(count):
        yield np.full((32, 48, 3), each, np.uint8)
    if fails is not None:
        raise fails


class TestPanels:
    def test_source_current_and_closest(
        self, pong: Episode, distances: NDArray[np.float64]
    ) -> None:
        shown = measured(pong, distances, source=4)
        closest = shown.closest_so_far(20)
        for step, picture in enumerate(panels(shown, apart=20)):
            current = picture[CAPTION : CAPTION + HIGH, MARGIN : MARGIN + WIDE]
            np.testing.assert_array_equal(current, enlarged(pong.rgb(step)))
            source = picture[LOWER : LOWER + HIGH, MARGIN : MARGIN + WIDE]
            np.testing.assert_array_equal(source, enlarged(pong.rgb(4)))
            near = picture[LOWER : LOWER + HIGH, RIGHT : RIGHT + WIDE]
            if closest[step] < 0:
                assert (near == near[0, 0]).all()
            else:
                np.testing.assert_array_equal(near, enlarged(pong.rgb(int(closest[step]))))
        assert step == STEPS - 1
        assert closest[0] < 0 <= closest[-1]
        assert picture.shape[0] % 16 == picture.shape[1] % 16 == 0

    def test_the_cursor_moves_over_the_plot(
        self, pong: Episode, distances: NDArray[np.float64]
    ) -> None:
        pink = [int(SOURCE[place : place + 2], 16) for place in (1, 3, 5)]
        found = []
        for picture in panels(measured(pong, distances)):
            plot = picture[: CAPTION + HIGH, RIGHT : RIGHT + PLOT]
            # A column all pink but for the dots on it.
            across = (plot == pink).all(axis=2).sum(axis=0)
            found.append(int(np.argmax(across)))
            assert across.max() > 300
        steps = np.diff(found)
        assert (steps > 0).all()
        assert np.ptp(steps) <= 1

    def test_ranked_frames_rise(self, pong: Episode, distances: NDArray[np.float64]) -> None:
        shown = measured(pong, distances)
        order = sorted(range(STEPS), key=lambda step: (distances[step], step))
        for step, picture in zip(order, ranked.panels(shown), strict=True):
            current = picture[CAPTION : CAPTION + HIGH, RIGHT : RIGHT + WIDE]
            np.testing.assert_array_equal(current, enlarged(pong.rgb(step)))
        assert picture.shape[0] % 16 == picture.shape[1] % 16 == 0

    def test_words_are_drawn_in_ink(self) -> None:
        assert words("step 1", 100, 30).min() < 60
        assert (words("", 100, 30) == 255).all()
        assert (words("step 1", 100, 30) != words("step 2", 100, 30)).any()


class TestFilms:
    def test_four_panels_as_a_file(
        self, pong: Episode, distances: NDArray[np.float64], tmp_path: Path
    ) -> None:
        path = video(pong, distances, tmp_path / "pong.mp4", apart=20, title="A game")
        wanted = [each.copy() for each in panels(measured(pong, distances), apart=20)]
        found = read(path, wanted[0].shape)
        assert len(found) == STEPS
        # Compressed, and yet the same pictures.
        for each in (0, STEPS // 2, STEPS - 1):
            part = (slice(0, None), slice(0, RIGHT))
            error = np.abs(found[each][part].astype(int) - wanted[each][part])
            assert error.mean() < 3
        assert [each.name for each in tmp_path.iterdir()] == ["pong.mp4"]

    def test_ranked_as_a_file(
        self, pong: Episode, distances: NDArray[np.float64], tmp_path: Path
    ) -> None:
        path = ranked_video(pong, distances, tmp_path / "ranked.mp4")
        *_, last = ranked.panels(measured(pong, distances))
        found = read(path, last.shape)
        assert len(found) == STEPS
        assert np.abs(found[-1][:, :RIGHT].astype(int) - last[:, :RIGHT]).mean() < 3

    def test_the_same_frames_make_the_same_file(self, tmp_path: Path) -> None:
        once, twice = (
            films.write(tmp_path / name, pictures(5), 5, fps=10) for name in ("a.mp4", "b.mp4")
        )
        assert once.read_bytes() == twice.read_bytes()

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("no more")])
    def test_nothing_half_written_is_left(self, tmp_path: Path, error: BaseException) -> None:
        path = tmp_path / "a.mp4"
        path.write_text("before")
        with pytest.raises(type(error)):
            films.write(path, pictures(5, fails=error), 9, fps=10)
        assert [each.name for each in tmp_path.iterdir()] == ["a.mp4"]
        assert path.read_text() == "before"

    def test_an_interrupt_from_the_keyboard(self, tmp_path: Path) -> None:
        text = (
            "import itertools, signal, sys, numpy as np\n"
            "from bisimetric.views.games import films\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "frames = (np.zeros((32, 48, 3), np.uint8) for _ in itertools.count())\n"
            "films.write(sys.argv[1], frames, 10**9, fps=10)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", text, str(tmp_path / "a.mp4")], stderr=subprocess.PIPE
        ) as process:
            until = time.monotonic() + 60
            while not list(tmp_path.iterdir()) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(0.2)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert b"KeyboardInterrupt" in process.communicate(timeout=60)[1]
        assert list(tmp_path.iterdir()) == []

    def test_what_ffmpeg_refuses_is_said_in_one_sentence(self, tmp_path: Path) -> None:
        odd = (np.zeros((33, 47, 3), np.uint8) for _ in range(2000))
        with pytest.raises(OSError, match=r"cannot write .*a\.mp4: ffmpeg says '.*divisible by 2"):
            films.write(tmp_path / "a.mp4", odd, 2000, fps=10)
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_package_is_named_with_its_extra(
        self,
        pong: Episode,
        distances: NDArray[np.float64],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
        for film in (video, ranked_video):
            with pytest.raises(
                InputError, match=re.escape("not installed; pip install 'bisimetric[atari]'.")
            ):
                film(pong, distances, tmp_path / "a.mp4")
        assert list(tmp_path.iterdir()) == []

    def test_no_ffmpeg_for_this_machine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def none() -> str:
            raise RuntimeError("No ffmpeg exe could be found.")

        monkeypatch.setattr(importlib.import_module("imageio_ffmpeg"), "get_ffmpeg_exe", none)
        with pytest.raises(InputError, match=r"has no ffmpeg .* IMAGEIO_FFMPEG_EXE"):
            films.check_film(tmp_path / "a.mp4", 10)

    def test_bad_input_is_refused_before_any_work(
        self, pong: Episode, distances: NDArray[np.float64], tmp_path: Path
    ) -> None:
        for film in (video, ranked_video):
            with pytest.raises(InputError, match=r"a\.gif does not end in \.mp4"):
                film(pong, distances, tmp_path / "a.gif")
            with pytest.raises(InputError, match="video: fps is 0"):
                film(pong, distances, tmp_path / "a.mp4", fps=0)
            with pytest.raises(FileNotFoundError, match="make the folder"):
                film(pong, distances, tmp_path / "none" / "a.mp4")
            with pytest.raises(InputError, match="distance of frame 0 is nan"):
                film(pong, distances * np.nan, tmp_path / "a.mp4")
            with pytest.raises(InputError, match=r"shape \(59,\) and the episode has 60 frames"):
                film(pong, distances[1:], tmp_path / "a.mp4")
        with pytest.raises(InputError, match="video: apart is 0"):
            video(pong, distances, tmp_path / "a.mp4", apart=0)
