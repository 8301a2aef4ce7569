"""Check the sdist and the wheel in a folder, then run the demo of the installed wheel.

The wheel may contain the package and its metadata only. It is installed into a temporary
environment, outside the source tree, and the demo runs there. `--tag v0.1.0` also requires that
version. Run it with `python tools/check_distributions.py dist`, or by `make dist`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

PACKAGE = "bisimetric"
MAX_WHEEL_BYTES = 30_000_000
"""The weights of three pretrained agents take 23.5 MB of the wheel."""
SUFFIXES = (".py", ".typed", ".cu", ".css", ".html", ".js", ".md", ".safetensors", ".LICENSE")
"""Names of package files end in one of these."""
REQUIRED = ("py.typed", "explorer/parts/page.html", "exact/gpu/kernels.cu")
"""Data files that must be in the wheel."""


def find_problems(members: Iterable[str], version: str) -> list[str]:
    """Return what is wrong with the list of files in a wheel, one sentence each.

    Args:
        members: the paths in the archive.
        version: of the wheel.

    >>> metadata = ["METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"]
    >>> complete = [f"bisimetric-0.1.0.dist-info/{name}" for name in metadata]
    >>> complete += [f"bisimetric/{name}" for name in REQUIRED]
    >>> find_problems(complete, "0.1.0")
    []
    >>> find_problems([*complete[1:], "tests/conftest.py"], "0.1.0")
    ['tests/conftest.py does not belong in the wheel.', 'METADATA is missing from the wheel.']
    """
    metadata = f"{PACKAGE}-{version}.dist-info/"
    names = set(members)
    problems = [
        f"{name} does not belong in the wheel."
        for name in sorted(names)
        if not name.startswith(metadata)
        and not (name.startswith(f"{PACKAGE}/") and name.endswith(SUFFIXES))
    ]
    required = [f"{PACKAGE}/{name}" for name in REQUIRED]
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
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


def check(folder: Path, tag: str | None) -> Path:
    """Check the files of both distributions and return the path of the wheel.

    Raises:
        ValueError: a file is missing or does not belong there, or the version is not that of the
            tag.
    """
    wheel = find_one(folder, f"{PACKAGE}-*.whl")
    sdist = find_one(folder, f"{PACKAGE}-*.tar.gz")
    version = wheel.name.split("-")[1]
    if tag and tag != f"v{version}":
        raise ValueError(f"the tag is {tag} and must be v{version}, the version of {wheel.name}.")
    if sdist.name != f"{PACKAGE}-{version}.tar.gz":
        raise ValueError(f"{sdist.name} and {wheel.name} differ in version; empty {folder}.")
    with zipfile.ZipFile(wheel) as archive:
        problems = find_problems(archive.namelist(), version)
    with tarfile.open(sdist) as archive_of_sources:
        names = set(archive_of_sources.getnames())
    for name in ("pyproject.toml", "README.md", "LICENSE", f"src/{PACKAGE}/__init__.py"):
        if f"{PACKAGE}-{version}/{name}" not in names:
            problems.append(f"{name} is missing from the sdist.")
    if wheel.stat().st_size > MAX_WHEEL_BYTES:
        problems.append(
            f"the wheel has {wheel.stat().st_size:,} bytes, above {MAX_WHEEL_BYTES:,}; which file "
            "is large?"
        )
    if problems:
        raise ValueError(" ".join(problems))
    for path in (sdist, wheel):
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    return wheel


def run_demo(wheel: Path) -> None:
    """Install the wheel into a temporary environment and run the demo there.

    Raises:
        ValueError: the installed package is another one, or the demo fails.
    """
    # The source tree, or another environment, must not be importable.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        venv.create(folder / "venv", with_pip=True)
        bin_folder = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        python = bin_folder / "python"
        install = [str(python), "-m", "pip", "install", "--quiet", str(wheel.resolve())]
        code = f"import {PACKAGE}; print({PACKAGE}.__file__, {PACKAGE}.__version__)"
        commands = (
            install,
            [str(python), "-c", code],
            [str(bin_folder / PACKAGE), "--version"],
            [str(bin_folder / PACKAGE), "demo", "--output", "demo"],
        )
        for command in commands:
            done = subprocess.run(
                command, cwd=folder, env=clean, text=True, stdout=subprocess.PIPE, check=False
            )
            if done.returncode != 0:
                raise ValueError(f"{' '.join(command)} failed.\n{done.stdout}")
            print(done.stdout, end="")
            if "-c" in command and not done.stdout.startswith(str(folder)):
                raise ValueError(f"the package was imported from {done.stdout.split()[0]}.")
        figures = [path.name for path in (folder / "demo").iterdir()]
        if not any(re.fullmatch(r".*\.png", figure) for figure in figures):
            raise ValueError(f"the demo wrote {', '.join(figures) or 'nothing'}, and no figure.")


def main() -> None:
    """Check the distributions in the folder that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of one sdist and one wheel")
    parser.add_argument("--tag", help="the git tag of the release, such as v0.1.0")
    arguments = parser.parse_args()
    try:
        run_demo(check(arguments.folder, arguments.tag))
    except ValueError as error:
        sys.exit(f"{arguments.folder}: {error}")


if __name__ == "__main__":
    main()
