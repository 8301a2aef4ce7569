"""The page of an episode, and its pictures."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from numpy.typing import NDArray

from bisimetric import InputError, explorer
from bisimetric.explorer import episodes
from bisimetric.explorer.bundle import encode_data_url, encode_png
from tests.page_data import read_page_data


def decode_png(file: bytes) -> NDArray[np.uint8]:
    return np.asarray(np.rint(255 * image.imread(io.BytesIO(file), "png")), np.uint8)


def test_png_encoding_is_lossless() -> None:
    rng = np.random.default_rng(0)
    greys = rng.integers(0, 256, (7, 5), dtype=np.uint8)
    colours = rng.integers(0, 256, (7, 5, 3), dtype=np.uint8)
    palette = rng.integers(0, 256, (9, 3), dtype=np.uint8)
    places = rng.integers(0, 9, (7, 5), dtype=np.uint8)
    assert (decode_png(encode_png(greys)) == greys).all()
    assert (decode_png(encode_png(colours)) == colours).all()
    assert (decode_png(encode_png(places, palette))[..., :3] == palette[places]).all()
    assert encode_data_url(b"\x89").startswith("data:image/png;base64,")


def test_a_page_contains_the_frames_values_and_events() -> None:
    frames = np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 4, 4)
    far = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    data = read_page_data(
        explorer.render_episode(
            frames,
            far,
            times=[4, 8, 12],
            values=[1, 2, 3],
            events={8: "<b>point</b>"},
            title="Pong",
        )
    )
    assert data["times"] == [4, 8, 12]
    assert data["events"] == [{"time": 8, "text": "<b>point</b>"}]
    for frame, address in zip(frames, data["frames"], strict=True):
        assert (decode_png(base64.b64decode(address.partition(",")[2])) == frame).all()
    assert np.frombuffer(base64.b64decode(data["V"])).tolist() == [1, 2, 3]
    assert data["notes"] == []
    assert data["source"] == 0


def test_a_page_starts_from_the_frame_at_a_time_or_near_it() -> None:
    frames, far = np.zeros((3, 4, 4), np.uint8), np.zeros((3, 3))
    for time, place in ((4, 0), (9, 1), (12, 2)):
        page = explorer.render_episode(frames, far, times=[4, 8, 12], source=time)
        assert read_page_data(page)["source"] == place
    with pytest.raises(InputError, match=r"source is frame 13 and the frames are 4 to 12; name"):
        explorer.render_episode(frames, far, times=[4, 8, 12], source=13)


def test_many_and_large_frames_are_subsampled_with_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (700, 6, 6), dtype=np.uint8)
    data = read_page_data(explorer.render_episode(frames, np.zeros((700, 700))))
    assert len(data["frames"]) == 600
    assert (data["times"][0], data["times"][-1]) == (0, 699)
    assert data["notes"] == ["The page shows 600 of 700 frames, at equal steps."]
    some = read_page_data(
        explorer.render_episode(frames[:2], np.zeros((2, 2)), times=[0, 40], total_frames=41)
    )
    assert some["notes"] == ["The page shows 2 of 41 frames, at equal steps."]
    monkeypatch.setattr(episodes, "MAX_BYTES", 10_000)
    data = read_page_data(explorer.render_episode(frames[:100], np.zeros((100, 100))))
    assert re.fullmatch(r"One row and column in \d of the screens is shown.", data["notes"][0])
    assert sum(map(len, data["frames"])) < 15_000


FRAMES = np.zeros((3, 4, 4), np.uint8)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"frames": FRAMES.astype(float)}, r"frames are float64 of shape \(3, 4, 4\) and must be"),
        ({"frames": FRAMES[0]}, r"of shape \(4, 4\)"),
        ({"frames": np.zeros((3, 4, 4, 4), np.uint8)}, r"must be uint8, \(n, h, w\)"),
        ({"distances": np.zeros((2, 2))}, r"there are 3 frames and the matrix has 2"),
        ({"distances": np.full((3, 3), np.nan)}, r"explorer.render_episode: .* has nan at \[0, 0"),
        ({"times": [0, 0, 1]}, r"times must be 3 increasing integers"),
        ({"times": [0.5, 1, 2]}, r"times must be 3 increasing integers"),
        ({"values": [1, 2]}, r"values must be 3 finite numbers"),
        ({"values": [1, 2, np.inf]}, r"values must be 3 finite numbers"),
        ({"palette": np.zeros((2, 4), np.uint8)}, r"the palette is uint8 of shape \(2, 4\)"),
        ({"palette": np.zeros((0, 3), np.uint8)}, r"a frame has colour 0 and the palette has 0"),
    ],
)
def test_bad_episodes_raise(words: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        explorer.render_episode(**{"frames": FRAMES, "distances": np.zeros((3, 3)), **words})
