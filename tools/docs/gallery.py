"""The gallery: one page per script, with the figure that the script saves and its source."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path


def write_pages(source: Path, output: Path) -> None:
    """Run each script, which saves one figure `NAME.png`; write its page and an overview.

    Args:
        source: the folder of the scripts. The docstring of a script is the text of its page; its
            first line is the title.
        output: the folder of the pages.

    Raises:
        FileNotFoundError: if a script saves no figure with its own name.
    """
    output.mkdir(parents=True, exist_ok=True)
    cards = []
    for script in sorted(source.glob("*.py")):
        print(f"gallery {script.stem}", flush=True)
        environment = {**os.environ, "MPLBACKEND": "agg", "TQDM_DISABLE": "1"}
        subprocess.run([sys.executable, script.resolve()], cwd=output, env=environment, check=True)
        if not (output / f"{script.stem}.png").exists():
            raise FileNotFoundError(f"{script.name} saves no {script.stem}.png.")
        title, text, code = split_script(script.read_text(encoding="utf-8"))
        (output / f"{script.stem}.md").write_text(
            f"# {title}\n\n{text}\n\n![{title}]({script.stem}.png)\n\n```python\n{code}\n```\n",
            encoding="utf-8",
        )
        link = f"{script.stem}.md"
        cards.append(
            f"<figure markdown>\n[![{title}]({script.stem}.png)]({link})\n"
            f"<figcaption markdown>[{title}]({link})</figcaption>\n</figure>"
        )
    overview = (source / "index.md").read_text(encoding="utf-8").rstrip()
    grid = '<div class="gallery" markdown>\n' + "\n".join(cards) + "\n</div>"
    (output / "index.md").write_text(f"{overview}\n\n{grid}\n", encoding="utf-8")


def split_script(source: str) -> tuple[str, str, str]:
    r"""Return the title, the text and the code of a script.

    >>> split_script("'Title.\\n\\nText.'\n\nprint(1)\n")
    ('Title', 'Text.', 'print(1)')
    """
    module = ast.parse(source)
    docstring = ast.get_docstring(module) or ""
    title, _, text = docstring.partition("\n")
    last_line = module.body[0].end_lineno or 0
    code = "\n".join(source.splitlines()[last_line:]).strip()
    return title.rstrip("."), text.strip(), code
