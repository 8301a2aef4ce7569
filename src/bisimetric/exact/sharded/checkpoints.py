"""Checkpoints of a sharded run: one folder, in which the last table that is whole has a manifest.

A table is written beside the last one. Once all processes have written their rows, the first one
puts the manifest in its place, and the old table is removed. So whatever happens, and whenever,
the manifest names a whole table.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import jax

from bisimetric.errors import InputError
from bisimetric.exact.sharded.group import Group, agreed
from bisimetric.exact.sharded.layout import Layout
from bisimetric.exact.sharded.rows import read_rows, require_disk, write_rows
from bisimetric.files import written_beside

MANIFEST = "manifest.json"
FORMAT = "bisimetric sharded run, version 1"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A folder that keeps a run, and what the run in it must be.

    Attributes:
        every: seconds between two checkpoints.
        run: fingerprint of the MDP, kind, dtype and version: a run of others is refused.
    """

    folder: Path
    every: float
    run: dict[str, str]

    def found(self, group: Group) -> dict[str, Any] | None:
        """The manifest of a run to go on with, checked; None where there is none."""
        manifest = group.together(self._read)
        digest = hashlib.sha256(json.dumps(manifest).encode()).hexdigest()[:16]
        group.same({"checkpoint": digest if manifest else "none"}, str(self.folder))
        return manifest

    def table(self, group: Group, layout: Layout, manifest: dict[str, Any]) -> jax.Array:
        """The table that a manifest names."""
        return read_rows(group, layout, self.folder / manifest["table"])

    def require_disk(self, layout: Layout) -> None:
        """Two tables lie there while one replaces the other."""
        self.folder.mkdir(parents=True, exist_ok=True)
        require_disk("checkpoint", self.folder, 2 * layout.states * layout.row_bytes)

    def write(
        self, group: Group, layout: Layout, table: jax.Array, progress: dict[str, int]
    ) -> None:
        """Keeps a table and how far the run has come; the last stays until this is whole."""
        number = max(progress.values())
        name = f"table-{number:06d}"
        path = self.folder / name
        before = self._read()
        try:
            group.together(lambda: self._remove(group, name))
            write_rows(group, layout, table, path)
            about = {
                "format": FORMAT,
                **self.run,
                "table": name,
                "progress": progress,
                "states": layout.states,
                "processes": group.count,
                "rows a device": layout.height,
            }
            group.together(lambda: self._name(group, about))
        except OSError as error:
            kept = "" if before is None else f"; {self.folder} keeps {before['table']}, go on there"
            if group.index == 0:
                shutil.rmtree(path, ignore_errors=True)
            why = str(error).rstrip(".")
            raise agreed(OSError(f"cannot write the checkpoint: {why}{kept}.")) from None
        if before is not None and before["table"] != name:
            group.together(lambda: self._remove(group, before["table"]))

    def removed(self, group: Group) -> None:
        """Takes the run away, once its table is kept elsewhere."""

        def remove() -> None:
            if group.index == 0:
                manifest = self._read()
                (self.folder / MANIFEST).unlink(missing_ok=True)
                if manifest is not None:
                    shutil.rmtree(self.folder / manifest["table"], ignore_errors=True)

        group.together(remove)

    def _read(self) -> dict[str, Any] | None:
        path = self.folder / MANIFEST
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["format"] != FORMAT:
                raise ValueError(found["format"])
            name, progress = found["table"], found["progress"]
            if not (isinstance(name, str) and isinstance(progress, dict)):
                raise TypeError("its table")
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is no manifest of a run ({error}); remove it.") from None
        for what, wanted in self.run.items():
            if found.get(what) != wanted:
                raise InputError(
                    f"{self.folder} keeps a run of another {what} ({found.get(what)}, and this is "
                    f"{wanted}); name another folder, or remove that one."
                )
        return dict(found)

    def _name(self, group: Group, about: dict[str, Any]) -> None:
        if group.index == 0:
            with written_beside(self.folder / MANIFEST) as beside:
                beside.write_text(json.dumps(about, indent=1), encoding="utf-8")

    def _remove(self, group: Group, name: str) -> None:
        if group.index == 0 and (self.folder / name).exists():
            shutil.rmtree(self.folder / name)
