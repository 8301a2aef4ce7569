"""Build the documentation site: assemble its pages in build/docs, then run Zensical on them.

Pages come from docs/; the rest is generated: tutorials are executed as notebooks, gallery scripts
are run, and the reference is derived from the package and its command line. The playground is the
page of `bisimetric playground`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gallery
import links
import reference
import tutorials
from bisimetric import explorer

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "docs"
COPIED = {name: name.lower() for name in ("CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md")}
"""Pages at the root of the repository, by their names in the site."""


def main() -> int:
    """Assemble the pages and build the site.

    Returns:
        0 if the site was built without warnings, dead links and missing pages.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--draft", action="store_true", help="allow warnings; leave out tutorials and gallery"
    )
    options = parser.parse_args()
    assemble(run_code=not options.draft)
    # Zensical imports the module of the formulas.
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "zensical", "build", "--clean"]
    command += [] if options.draft else ["--strict"]
    environment = {**os.environ, "PYTHONPATH": path}
    code = subprocess.run(command, cwd=ROOT, env=environment).returncode
    problems = [*find_missing_pages(), *links.find_dead_links(ROOT / "site")]
    print("\n".join(problems))
    return code if options.draft else code or bool(problems)


def find_missing_pages() -> list[str]:
    """Return one message per page in the navigation that does not exist."""
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    pages = re.findall(r'"([\w/.-]+\.md)"', text)
    return [
        f"{page} is in the navigation but does not exist"
        for page in pages
        if not (PAGES / page).exists()
    ]


def assemble(*, run_code: bool = True) -> None:
    """Write all pages of the site to build/docs.

    Args:
        run_code: whether to execute the tutorials and the scripts of the gallery.
    """
    if PAGES.exists():
        shutil.rmtree(PAGES)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for source, name in COPIED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        for page, lower in COPIED.items():
            text = text.replace(f"]({page})", f"]({lower})")
        (PAGES / name).write_text(text.replace("](docs/", "]("), encoding="utf-8")
    (PAGES / "playground").mkdir()
    explorer.save_page(explorer.render_playground(), PAGES / "playground" / "page.html")
    reference.write_api_pages(PAGES / "reference" / "api")
    reference.write_cli_page(PAGES / "reference" / "cli.md")
    if run_code:
        tutorials.write_pages(ROOT / "docs" / "tutorials", PAGES / "tutorials")
        gallery.write_pages(ROOT / "docs" / "gallery", PAGES / "gallery")


if __name__ == "__main__":
    sys.exit(main())
