"""Metadata that several files repeat agrees, and README.md renders outside the repository."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import bisimetric
import bisimetric_atari
import check_distributions

ROOT = Path(__file__).parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ATARI: dict[str, Any] = tomllib.loads(
    (ROOT / "atari" / "pyproject.toml").read_text(encoding="utf-8")
)["project"]
PROJECT, HATCH = PYPROJECT["project"], PYPROJECT["tool"]["hatch"]
REPOSITORY = PROJECT["urls"]["Repository"]
NAME = REPOSITORY.removeprefix("https://github.com/")
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
ZENODO: dict[str, Any] = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))


def citation_field(name: str) -> str:
    """The text of a field in one line, without quotes."""
    found = re.search(rf"^{name}: (.+)$", CITATION, re.MULTILINE)
    assert found, name
    return found[1].strip('"')


def test_one_version() -> None:
    assert "version" in PROJECT["dynamic"]
    assert ROOT / HATCH["version"]["path"] == ROOT / "src" / "bisimetric" / "__init__.py"
    assert citation_field("version") == ZENODO["version"] == bisimetric.__version__
    assert bisimetric_atari.__version__ == bisimetric.__version__
    assert f"bisimetric[learn]=={bisimetric.__version__}" in ATARI["dependencies"]
    assert f"\n## {bisimetric.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_citation_and_zenodo_agree() -> None:
    assert ZENODO["title"] == citation_field("title")
    assert ZENODO["license"] == citation_field("license") == PROJECT["license"]
    assert [creator["name"] for creator in ZENODO["creators"]] == [
        author["name"] for author in PROJECT["authors"]
    ]
    for text in (*ZENODO["keywords"], *(each["name"] for each in ZENODO["creators"])):
        assert f"\n  - {text}\n" in CITATION.replace("- name: ", "- ")
    assert ZENODO["description"].split() == re.findall(
        r"\S+", CITATION.partition("abstract: >-")[2].partition("\nauthors:")[0]
    )


def test_one_address() -> None:
    assert citation_field("repository-code") == REPOSITORY
    assert citation_field("url") == PROJECT["urls"]["Documentation"]
    assert ZENODO["related_identifiers"][0]["identifier"] == REPOSITORY
    for url in PROJECT["urls"].values():
        owner, _, name = NAME.partition("/")
        assert url.startswith((REPOSITORY, f"https://{owner}.github.io/{name}/"))


def test_both_distributions_share_their_metadata() -> None:
    for field in ("authors", "license", "requires-python", "urls"):
        assert ATARI[field] == PROJECT[field]
    assert {*ATARI["classifiers"]} <= {*PROJECT["classifiers"]}
    licence = (ROOT / "LICENSE").read_bytes()
    assert (ROOT / "atari" / "LICENSE").read_bytes() == licence
    for text in (ATARI["description"], (ROOT / "atari" / "README.md").read_text(encoding="utf-8")):
        assert "GPL-2.0" in text


def test_python_versions_are_those_of_continuous_integration() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    found = re.search(r"python: \[(.*)\]", workflow)
    assert found
    tested = re.findall(r"[\d.]+", found[1])
    prefix = "Programming Language :: Python :: "
    named = [
        each.removeprefix(prefix)
        for each in PROJECT["classifiers"]
        if re.fullmatch(prefix + r"3\.\d+", each)
    ]
    assert named == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"


def render_readme(text: str) -> str:
    """README.md as on PyPI, by the substitutions of pyproject.toml."""
    for each in HATCH["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        replacement = each["replacement"].replace("$HFPR_VERSION", bisimetric.__version__)
        text = re.sub(each["pattern"], replacement, text)
    return text


def test_links_of_the_readme_are_absolute_on_pypi() -> None:
    text = render_readme((ROOT / "README.md").read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)]+)\)", text)
    links += re.findall(r'\b(?:src|srcset|href)="([^"]+)"', text)
    assert links
    files = 0
    for link in links:
        assert link.startswith(("https://", "#", "mailto:")), link
        if found := re.match(rf"https://[^/]+/{NAME}/(?:blob/)?v([\d.]+)/([^#]+)", link):
            assert found[1] == bisimetric.__version__
            assert (ROOT / found[2]).exists(), link
            files += 1
    assert files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("![a](b.png)", "![a](https://raw.githubusercontent.com/{name}/v{version}/b.png)"),
        ("[a](b.md#c)", "[a](https://github.com/{name}/blob/v{version}/b.md#c)"),
        (
            "[![a](b.png)](c.md)",
            "[![a](https://raw.githubusercontent.com/{name}/v{version}/b.png)]"
            "(https://github.com/{name}/blob/v{version}/c.md)",
        ),
        (
            '<img src="b.png">',
            '<img src="https://raw.githubusercontent.com/{name}/v{version}/b.png">',
        ),
        ('<a href="c.md">', '<a href="https://github.com/{name}/blob/v{version}/c.md">'),
        ("[a](#c) [b](https://d.org)", "[a](#c) [b](https://d.org)"),
    ],
)
def test_substitutions(text: str, expected: str) -> None:
    assert render_readme(text) == expected.format(name=NAME, version=bisimetric.__version__)


@pytest.mark.parametrize(
    ("package", "folder"),
    [(check_distributions.CORE, "src"), (check_distributions.ATARI, "atari/src")],
    ids=["bisimetric", "bisimetric-atari"],
)
def test_files_of_the_wheel(package: check_distributions.Package, folder: str) -> None:
    excluded = HATCH["build"]["targets"]["wheel"]["exclude"]
    files = [
        str(path.relative_to(ROOT / folder))
        for path in (ROOT / folder / package.name).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not any(fnmatch.fnmatch(f"/{path.relative_to(ROOT)}", each) for each in excluded)
    ]
    licences = [f"licenses/{name}" for name in package.licences]
    metadata = [
        f"{package.name}-1.dist-info/{name}" for name in ("METADATA", "entry_points.txt", *licences)
    ]
    assert check_distributions.find_problems([*files, *metadata], "1", package) == []
    # Compression makes the wheel smaller than its files, and never much larger.
    sizes = sum((ROOT / folder / name).stat().st_size for name in files)
    assert sizes < 2 * package.max_bytes


def test_licences_of_the_wheel_are_those_of_the_project() -> None:
    assert PROJECT["license-files"] == [*check_distributions.CORE.licences]
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: each for name, each in lock["packages"].items() if name}
    assert len(packages) > 50
    for name, each in packages.items():
        assert "resolved" not in each, name
        assert each["integrity"].startswith("sha512-"), name


def test_a_tag_must_be_the_version(tmp_path: Path) -> None:
    for name in ("bisimetric-0.1.0-py3-none-any.whl", "bisimetric-0.1.0.tar.gz"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"the tag is v0\.2\.0 and must be v0\.1\.0"):
        check_distributions.check(tmp_path, "v0.2.0")
    (tmp_path / "bisimetric-0.0.9.tar.gz").touch()
    with pytest.raises(ValueError, match=r"has 2 files bisimetric-\*\.tar\.gz"):
        check_distributions.check(tmp_path, None)
