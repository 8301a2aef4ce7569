"""Tutorials: scripts with `# %%` cells, executed as notebooks and written as pages."""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter


def write_pages(source: Path, output: Path) -> None:
    """Execute each tutorial; write it as a page, with its figures, and as a notebook to download.

    Args:
        source: the folder of the scripts.
        output: the folder of the pages.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell raises.
    """
    output.mkdir(parents=True, exist_ok=True)
    for script in sorted(source.glob("*.py")):
        print(f"tutorial {script.stem}", flush=True)
        notebook = execute(script, output)
        nbformat.write(notebook, output / f"{script.stem}.ipynb")
        exporter = MarkdownExporter()
        text, resources = exporter.from_notebook_node(
            notebook, {"output_files_dir": f"{script.stem}_files"}
        )
        for name, content in resources["outputs"].items():
            path = output / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        title, _, rest = text.lstrip().partition("\n")
        download = f"\n*This page is an executed notebook: [download it]({script.stem}.ipynb).*\n"
        (output / f"{script.stem}.md").write_text(f"{title}\n{download}{rest}", encoding="utf-8")


def execute(script: Path, folder: Path) -> nbformat.NotebookNode:
    """Return a script as an executed notebook; its cells run in a scratch folder.

    Args:
        script: a Python script in the percent format.
        folder: where the scratch folder is made.

    Returns:
        The notebook with its outputs.
    """
    notebook = jupytext.read(script)
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    scratch = folder.parents[1] / "scratch" / script.stem
    scratch.mkdir(parents=True, exist_ok=True)
    client = NotebookClient(
        notebook,
        timeout=600,
        resources={"metadata": {"path": str(scratch)}},
        coalesce_streams=True,
    )
    client.execute()
    remove_progress_bars(notebook)
    return notebook


def remove_progress_bars(notebook: nbformat.NotebookNode) -> None:
    """Remove the lines that text progress bars leave: bars, and the spaces that overwrite them."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                lines = output.text.splitlines(keepends=True)
                output.text = "".join(
                    line.rpartition("\r")[2].lstrip(" ") if "\r" in line else line for line in lines
                )
