"""What pages are put together of: numbers in base64, scripts, licences."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import exact, explorer, worlds
from bisimetric.explorer import bundle, pages
from tests.page_data import decode_distances
from tests.property_testing import scaled


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=scaled(30))
def test_a_small_matrix_keeps_all_digits(count: int, key: int) -> None:
    table = np.random.default_rng(key).random((count, count))
    table = table + table.T
    assert (decode_distances(bundle.encode_distances(table), count) == table).all()


def test_a_large_matrix_is_rounded_by_at_most_one_step() -> None:
    rng = np.random.default_rng(0)
    table = 150 * rng.random((60, 60)) ** 8
    table = np.maximum(table, table.T)
    np.fill_diagonal(table, 0.0)
    table[3, 4] = table[4, 3] = 1e-12
    packed = bundle.encode_distances(table, num_matrices=10_000)
    found = decode_distances(packed, 60)
    assert packed["encoding"] == "uint24"
    assert packed["step"] == pytest.approx(table.max() / (2**24 - 1))
    assert np.abs(found - table).max() <= packed["step"]
    assert ((found == 0) == (table == 0)).all()


def test_a_page_requests_nothing_from_the_network() -> None:
    text = explorer.render_page(exact.bisimulation(worlds.load("pessimism")))
    assert not re.findall(r'(?:src|href)="(?!data:)', text)


def test_every_part_is_in_a_page_and_its_licences_beside_it() -> None:
    used = {
        *pages.SHARED_SCRIPTS,
        *pages.PAGE_SCRIPTS,
        *pages.NOTEBOOK_SCRIPTS,
        *explorer.episodes.SCRIPTS,
    }
    assert used == {path.name for path in bundle.PARTS.glob("*.js")}
    assert {path.name for path in bundle.PARTS.glob("*.css")} == set(bundle.STYLES)
    said = (bundle.VENDOR / "README.md").read_text(encoding="utf-8")
    for name in bundle.LIBRARIES:
        first = (bundle.VENDOR / name).read_text(encoding="utf-8").splitlines()[0]
        version = re.search(r"v(\d+\.\d+\.\d+)", first)
        assert version is not None
        assert version[1] in said
        assert (bundle.VENDOR / name.replace(".min.js", ".LICENSE")).is_file()


def test_modules_import_only_from_earlier_ones() -> None:
    for scripts in (
        (*pages.SHARED_SCRIPTS, *pages.PAGE_SCRIPTS),
        (*pages.SHARED_SCRIPTS, *pages.NOTEBOOK_SCRIPTS),
        explorer.episodes.SCRIPTS,
    ):
        for place, name in enumerate(scripts):
            text = (bundle.PARTS / name).read_text(encoding="utf-8")
            for wanted in re.findall(r'^} from "\./(.*?)";|from "\./(.*?)";', text, re.MULTILINE):
                assert "".join(wanted) in scripts[:place], f"{name} imports {wanted}"
    assert "import " not in bundle.join_modules(["numbers.js", "couplings.js", "explanation.js"])


@pytest.mark.parametrize(
    "scripts",
    [
        (*pages.SHARED_SCRIPTS, *pages.PAGE_SCRIPTS),
        (*pages.SHARED_SCRIPTS, *pages.NOTEBOOK_SCRIPTS),
        explorer.episodes.SCRIPTS,
    ],
)
def test_top_level_names_of_a_page_are_unique(scripts: tuple[str, ...]) -> None:
    # They become one script, in which the last of two functions would silently win.
    kinds = r"^(?:async )?(?:const|let|class|function\*?) (?:\{(.*?)\} =|\[(.*?)\] =|(\w+))"
    found = re.findall(kinds, bundle.join_modules(scripts), re.MULTILINE)
    names = [name for three in found for name in re.findall(r"\w+", " ".join(three))]
    assert len(names) > 20
    assert sorted(names) == sorted(set(names))
