"""Check the sdists and wheels of both distributions in a folder, then run the installed wheels.

A wheel may contain its package and its metadata only. The core is installed into a temporary
environment, outside the source tree, and its demo runs there; then bisimetric-atari is added, and
`bisimetric atari show` runs with the pretrained agent and metric. `--tag v0.1.0` also requires that
version. Run it with `python tools/check_distributions.py dist`, or by `make dist`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Package:
    """What the wheel of a distribution may and must contain.

    Attributes:
        name: of the package and of the files of the distribution.
        max_bytes: the size of the wheel, at most.
        suffixes: names of its files end in one of these.
        required: data files that it must contain.
        forbidden: words that no path of it contains.
        licences: licence files that it must contain, beside the package.
    """

    name: str
    max_bytes: int
    suffixes: tuple[str, ...]
    required: tuple[str, ...]
    forbidden: tuple[str, ...] = ()
    licences: tuple[str, ...] = ("LICENSE",)


CORE = Package(
    "bisimetric",
    2_000_000,
    (".py", ".typed", ".cu", ".css", ".html", ".js", ".md", ".LICENSE", "/claims.json", ".toml"),
    (
        "py.typed",
        "explorer/parts/page.html",
        *(f"explorer/built/{name}.js" for name in ("charts", "page", "notebook", "episode")),
        *(f"explorer/built/{name}.js" for name in ("playground", "playground_worker")),
        "explorer/built/charts.LICENSE",
        *(f"exact/gpu/{name}.cu" for name in ("rows", "kernels", "lax", "transport", "couplings")),
        "paper/claims.json",
        "paper/claims.toml",
    ),
    ("atari", "rainbow", "games/", "agents/", "node_modules/", "explorer/parts/main.js"),
    ("LICENSE", "src/bisimetric/explorer/built/charts.LICENSE"),
)
ATARI = Package(
    "bisimetric_atari",
    41_000_000,
    (".py", ".typed", ".safetensors"),
    (
        "py.typed",
        *(f"agents/trained/{game}.safetensors" for game in ("Asterix", "Pong", "SpaceInvaders")),
        *(
            f"paper/metrics/{folder}{game}.safetensors"
            for folder in ("", "castro2020/")
            for game in ("Asterix", "Pong", "SpaceInvaders")
        ),
    ),
)
"""The weights of three pretrained agents take 23.5 MB of its wheel, those of metrics 16 MB."""


def find_problems(members: Iterable[str], version: str, package: Package = CORE) -> list[str]:
    """Return what is wrong with the list of files in a wheel, one sentence each.

    Args:
        members: the paths in the archive.
        version: of the wheel.
        package: what it may and must contain.

    >>> metadata = ["METADATA", "WHEEL", "RECORD", "entry_points.txt"]
    >>> metadata += [f"licenses/{name}" for name in CORE.licences]
    >>> complete = [f"bisimetric-0.1.0.dist-info/{name}" for name in metadata]
    >>> complete += [f"bisimetric/{name}" for name in CORE.required]
    >>> find_problems(complete, "0.1.0")
    []
    >>> find_problems([*complete[1:], "tests/conftest.py"], "0.1.0")
    ['tests/conftest.py does not belong in the wheel.', 'METADATA is missing from the wheel.']
    >>> find_problems([*complete, "bisimetric/games/episode.py"], "0.1.0")
    ['bisimetric/games/episode.py does not belong in the wheel.']
    """
    metadata = f"{package.name}-{version}.dist-info/"
    names = set(members)
    problems = [
        f"{name} does not belong in the wheel."
        for name in sorted(names)
        if not name.startswith(metadata)
        and not (
            name.startswith(f"{package.name}/")
            and name.endswith(package.suffixes)
            and not any(word in name for word in package.forbidden)
        )
    ]
    required = [f"{package.name}/{name}" for name in package.required]
    licences = [f"licenses/{name}" for name in package.licences]
    for name in ("METADATA", "entry_points.txt", *licences):
        required.append(metadata + name)
    missing = [name for name in required if name not in names]
    return problems + [
        f"{name.removeprefix(metadata)} is missing from the wheel." for name in missing
    ]


def find_one(folder: Path, pattern: str) -> Path:
    """Return the only file that matches a pattern.

    Raises:
        ValueError: there is none, or more than one.
    """
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ValueError(f"{folder} has {len(found)} files {pattern} and must have one.")
    return found[0]


def check(folder: Path, tag: str | None, package: Package = CORE) -> Path:
    """Check the files of a distribution and return the path of its wheel.

    Raises:
        ValueError: a file is missing or does not belong there, the wheel is too large, or the
            version is not that of the tag.
    """
    wheel = find_one(folder, f"{package.name}-*.whl")
    sdist = find_one(folder, f"{package.name}-*.tar.gz")
    version = wheel.name.split("-")[1]
    if tag and tag != f"v{version}":
        raise ValueError(f"the tag is {tag} and must be v{version}, the version of {wheel.name}.")
    if sdist.name != f"{package.name}-{version}.tar.gz":
        raise ValueError(f"{sdist.name} and {wheel.name} differ in version; empty {folder}.")
    with zipfile.ZipFile(wheel) as archive:
        problems = find_problems(archive.namelist(), version, package)
    with tarfile.open(sdist) as archive_of_sources:
        names = set(archive_of_sources.getnames())
    for name in ("pyproject.toml", "README.md", "LICENSE", f"src/{package.name}/__init__.py"):
        if f"{package.name}-{version}/{name}" not in names:
            problems.append(f"{name} is missing from the sdist.")
    if wheel.stat().st_size > package.max_bytes:
        problems.append(
            f"the wheel has {wheel.stat().st_size:,} bytes, above {package.max_bytes:,}; which "
            "file is large?"
        )
    if problems:
        raise ValueError(" ".join(problems))
    for path in (sdist, wheel):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
    return wheel


def run_wheels(core: Path, atari: Path) -> None:
    """Install the wheels into a temporary environment and run their commands there.

    Raises:
        ValueError: an installed package is another one, a command fails, or `bisimetric atari`
            works before its distribution is installed.
    """
    # The source tree, or another environment, must not be importable.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        venv.create(folder / "venv", with_pip=True)
        bin_folder = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        python, program = str(bin_folder / "python"), str(bin_folder / CORE.name)

        def run(*words: str, code: int = 0) -> str:
            done = subprocess.run(
                words, cwd=folder, env=clean, text=True, stdout=subprocess.PIPE, check=False
            )
            if done.returncode != code:
                raise ValueError(f"{' '.join(words)} ended with {done.returncode}.\n{done.stdout}")
            print(done.stdout, end="", flush=True)
            return done.stdout

        def install(wheel: Path, package: Package, *more: Path) -> None:
            run(python, "-m", "pip", "install", "--quiet", *map(str, (wheel.resolve(), *more)))
            found = run(python, "-c", f"import {package.name} as p; print(p.__file__)")
            if not found.startswith(str(folder)):
                raise ValueError(f"{package.name} was imported from {found.strip()}.")

        install(core, CORE)
        run(program, "--version")
        run(program, "demo", "--output", "demo")
        require_figures(folder / "demo")
        run(program, "atari", "show", "Pong", code=2)
        install(atari, ATARI, core.resolve())
        run(program, "atari", "show", "Pong", "--steps", "60", "--no-videos", "-o", "pong")
        require_figures(folder / "pong")


def require_figures(folder: Path) -> None:
    """Raise ValueError unless a command wrote a figure to the folder."""
    files: Sequence[str] = [path.name for path in folder.iterdir()]
    if not any(re.fullmatch(r".*\.png", file) for file in files):
        raise ValueError(f"{folder.name} has {', '.join(files) or 'nothing'}, and no figure.")


def main() -> None:
    """Check the distributions in the folder that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of one sdist and one wheel per distribution")
    parser.add_argument("--tag", help="the git tag of the release, such as v0.1.0")
    arguments = parser.parse_args()
    try:
        run_wheels(*(check(arguments.folder, arguments.tag, package) for package in (CORE, ATARI)))
    except ValueError as error:
        sys.exit(f"{arguments.folder}: {error}")


if __name__ == "__main__":
    main()
