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
from bisimetric.views._figure import ACCENT_COLOUR
from bisimetric_atari.games import Episode, play
from bisimetric_atari.views import mp4, videos, write_sorted_video, write_video
from bisimetric_atari.views.canvas import CAPTION_HEIGHT, MARGIN, enlarge, render_text
from bisimetric_atari.views.episode_distances import measure_episode
from bisimetric_atari.views.videos import PLOT_WIDTH, render_video_frames
from simple_agents import ChecksumAgent

STEPS = 60
WIDE, HIGH = 320, 420
LOWER = 2 * CAPTION_HEIGHT + HIGH + MARGIN
RIGHT = 2 * MARGIN + WIDE


@pytest.fixture(scope="module")
def pong() -> Episode:
    return play("Pong", ChecksumAgent("Pong", repeat=8), max_steps=STEPS)


@pytest.fixture(scope="module")
def distances(pong: Episode) -> NDArray[np.float64]:
    bright = pong.features[:, :-1]
    return np.asarray(np.abs(bright - bright[0]).sum(axis=1), np.float64)


def read(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """All frames of a video of this shape, (n, height, width, 3)."""
    told = [
        mp4.find_ffmpeg(),
        "-v",
        "error",
        "-i",
        str(path),
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
    ]
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
        shown = measure_episode(pong, distances, source=4)
        closest = shown.find_closest_so_far(20)
        for step, picture in enumerate(render_video_frames(shown, min_gap=20)):
            current = picture[CAPTION_HEIGHT : CAPTION_HEIGHT + HIGH, MARGIN : MARGIN + WIDE]
            np.testing.assert_array_equal(current, enlarge(pong.render(step)))
            source = picture[LOWER : LOWER + HIGH, MARGIN : MARGIN + WIDE]
            np.testing.assert_array_equal(source, enlarge(pong.render(4)))
            near = picture[LOWER : LOWER + HIGH, RIGHT : RIGHT + WIDE]
            if closest[step] < 0:
                assert (near == near[0, 0]).all()
            else:
                np.testing.assert_array_equal(near, enlarge(pong.render(int(closest[step]))))
        assert step == STEPS - 1
        assert closest[0] < 0 <= closest[-1]
        assert picture.shape[0] % 16 == picture.shape[1] % 16 == 0

    def test_the_cursor_moves_over_the_plot(
        self, pong: Episode, distances: NDArray[np.float64]
    ) -> None:
        pink = [int(ACCENT_COLOUR[place : place + 2], 16) for place in (1, 3, 5)]
        found = []
        for picture in render_video_frames(measure_episode(pong, distances)):
            plot = picture[: CAPTION_HEIGHT + HIGH, RIGHT : RIGHT + PLOT_WIDTH]
            # A column all pink but for the dots on it.
            across = (plot == pink).all(axis=2).sum(axis=0)
            found.append(int(np.argmax(across)))
            assert across.max() > 300
        steps = np.diff(found)
        assert (steps > 0).all()
        assert np.ptp(steps) <= 1

    def test_sorted_frames_have_increasing_distances(
        self, pong: Episode, distances: NDArray[np.float64]
    ) -> None:
        shown = measure_episode(pong, distances)
        order = sorted(range(STEPS), key=lambda step: (distances[step], step))
        for step, picture in zip(order, videos.render_sorted_frames(shown), strict=True):
            current = picture[CAPTION_HEIGHT : CAPTION_HEIGHT + HIGH, RIGHT : RIGHT + WIDE]
            np.testing.assert_array_equal(current, enlarge(pong.render(step)))
        assert picture.shape[0] % 16 == picture.shape[1] % 16 == 0

    def test_text_is_rendered(self) -> None:
        assert render_text("step 1", 100, 30).min() < 60
        assert (render_text("", 100, 30) == 255).all()
        assert (render_text("step 1", 100, 30) != render_text("step 2", 100, 30)).any()


class TestMp4:
    @pytest.mark.slow
    def test_four_panels_as_a_file(
        self, pong: Episode, distances: NDArray[np.float64], tmp_path: Path
    ) -> None:
        path = write_video(pong, distances, tmp_path / "pong.mp4", min_gap=20, title="A game")
        wanted = [
            each.copy()
            for each in render_video_frames(measure_episode(pong, distances), min_gap=20)
        ]
        found = read(path, wanted[0].shape)
        assert len(found) == STEPS
        # Compressed, and yet the same pictures.
        for each in (0, STEPS // 2, STEPS - 1):
            part = (slice(0, None), slice(0, RIGHT))
            error = np.abs(found[each][part].astype(int) - wanted[each][part])
            assert error.mean() < 3
        assert [each.name for each in tmp_path.iterdir()] == ["pong.mp4"]

    def test_write_sorted_video(
        self, pong: Episode, distances: NDArray[np.float64], tmp_path: Path
    ) -> None:
        path = write_sorted_video(pong, distances, tmp_path / "ranked.mp4")
        *_, last = videos.render_sorted_frames(measure_episode(pong, distances))
        found = read(path, last.shape)
        assert len(found) == STEPS
        assert np.abs(found[-1][:, :RIGHT].astype(int) - last[:, :RIGHT]).mean() < 3

    def test_the_same_frames_make_the_same_file(self, tmp_path: Path) -> None:
        once, twice = (
            mp4.write_mp4(tmp_path / name, pictures(5), 5, fps=10) for name in ("a.mp4", "b.mp4")
        )
        assert once.read_bytes() == twice.read_bytes()

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("no more")])
    def test_no_partial_file_is_left(self, tmp_path: Path, error: BaseException) -> None:
        path = tmp_path / "a.mp4"
        path.write_text("before")
        with pytest.raises(type(error)):
            mp4.write_mp4(path, pictures(5, fails=error), 9, fps=10)
        assert [each.name for each in tmp_path.iterdir()] == ["a.mp4"]
        assert path.read_text() == "before"

    def test_an_interrupt_from_the_keyboard(self, tmp_path: Path) -> None:
        text = (
            "import itertools, signal, sys, numpy as np\n"
            "from bisimetric_atari.views import mp4\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "frames = (np.zeros((32, 48, 3), np.uint8) for _ in itertools.count())\n"
            "mp4.write_mp4(sys.argv[1], frames, 10**9, fps=10)\n"
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

    def test_errors_of_ffmpeg_are_one_sentence(self, tmp_path: Path) -> None:
        odd = (np.zeros((33, 47, 3), np.uint8) for _ in range(2000))
        with pytest.raises(OSError, match=r"cannot write .*a\.mp4: ffmpeg says '.*divisible by 2"):
            mp4.write_mp4(tmp_path / "a.mp4", odd, 2000, fps=10)
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_package_is_named_with_its_extra(
        self,
        pong: Episode,
        distances: NDArray[np.float64],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
        for film in (write_video, write_sorted_video):
            with pytest.raises(
                InputError, match=re.escape("not installed; pip install bisimetric-atari.")
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
            mp4.require_writable_mp4(tmp_path / "a.mp4", 10)

    def test_bad_input_raises_before_any_work(
        self, pong: Episode, distances: NDArray[np.float64], tmp_path: Path
    ) -> None:
        for film in (write_video, write_sorted_video):
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
        with pytest.raises(InputError, match="min_gap is 0"):
            write_video(pong, distances, tmp_path / "a.mp4", min_gap=0)
