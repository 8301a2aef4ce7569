"""What pages are put together of: numbers in base64, scripts, licences."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import exact, explorer, worlds
from bisimetric.explorer import bundle
from tests.page_data import decode_distances
from tests.property_testing import scaled

ROOT = Path(__file__).parents[2]


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


def test_the_content_security_policy_allows_only_the_scripts_of_a_page() -> None:
    text = explorer.render_page(exact.bisimulation(worlds.load("pessimism")))
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()) for each in scripts]
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)
    assert policy is not None
    allowed = " ".join(f"'sha256-{each.decode()}'" for each in hashes)
    assert policy[1] == f"{bundle.CONTENT_SECURITY_POLICY}; script-src {allowed}"


def test_only_the_playground_starts_workers() -> None:
    text = explorer.render_playground()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)
    assert policy is not None
    assert policy[1] == (
        f"{bundle.CONTENT_SECURITY_POLICY}; script-src 'sha256-{hashed}'; worker-src blob:"
    )
    assert not re.findall(r'(?:src|href)="(?!data:)', text)


def test_a_page_has_the_licences_of_the_libraries_in_it() -> None:
    licences = (bundle.BUILT / "charts.LICENSE").read_text(encoding="utf-8")
    assert (bundle.BUILT / "charts.js").read_text(encoding="utf-8").startswith(f"/*\n{licences}*/")
    assert licences in explorer.render_page([[0.0, 1.0], [1.0, 0.0]])
    for name in ("@observablehq/plot", "d3-scale", "isoformat"):
        assert re.search(rf"^{name} [\d.]+: Copyright", licences, re.MULTILINE)


def test_the_styles_are_those_in_the_folder() -> None:
    assert {path.name for path in bundle.PARTS.glob("*.css")} == set(bundle.STYLES)


def test_top_level_names_of_the_parts_are_unique() -> None:
    # A name means one thing, and is found by searching for it.
    kinds = (
        r"^(?:export )?(?:const|let|class|(?:async )?function\*?) (?:\{(.*?)\} =|\[(.*?)\] =|(\w+))"
    )
    names: dict[str, str] = {}
    for path in sorted(bundle.PARTS.glob("*.js")):
        for found in re.findall(kinds, path.read_text(encoding="utf-8"), re.MULTILINE):
            for name in re.findall(r"\w+", " ".join(found)):
                assert name not in names, f"{name} is in {names[name]} and in {path.name}"
                names[name] = path.name
    assert len(names) > 100


def test_the_bundles_are_those_of_a_new_build() -> None:
    node = shutil.which("node")
    if node is None or not (ROOT / "node_modules" / "esbuild").is_dir():
        pytest.skip("Node or its packages are missing: `make test-js` installs them and compares")
    done = subprocess.run(
        [node, "tools/bundle_explorer.js", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
