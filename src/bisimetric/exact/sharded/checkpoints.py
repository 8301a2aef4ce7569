"""Checkpoints of a sharded run: one folder, in which the last table that is whole has a manifest.

A table is written beside the last one. Once all processes have written their rows, the first one
puts the manifest in its place, and the old table is removed. So whenever a process ends, the
manifest names a whole table; what it does not name is removed before the next one is written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import jax

from bisimetric._io import parse_object, write_atomically
from bisimetric.errors import InputError
from bisimetric.exact.sharded.layout import Layout
from bisimetric.exact.sharded.process_group import ProcessGroup, mark_collective
from bisimetric.exact.sharded.store import read_rows, require_disk_space, write_rows

MANIFEST = "manifest.json"
MATRIX_GLOB = "table-[0-9]*"
MATRIX_PATTERN = r"table-\d+"
FORMAT = "bisimetric sharded run, version 1"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A folder that keeps a run, and what the run in it must be.

    Attributes:
        every: seconds between two checkpoints.
        run: fingerprint of the MDP, kind, dtype and version: a run of others is refused.
    """

    folder: Path
    checkpoint_every: float
    identity: dict[str, str]

    def find_manifest(self, group: ProcessGroup) -> dict[str, Any] | None:
        """The manifest of a run to go on with, checked; None where there is none."""
        manifest = group.run_collectively(self._read_manifest)
        digest = hashlib.sha256(json.dumps(manifest).encode()).hexdigest()[:16]
        group.require_agreement({"checkpoint": digest if manifest else "none"}, str(self.folder))
        return manifest

    def read_values(
        self, group: ProcessGroup, layout: Layout, manifest: dict[str, Any]
    ) -> jax.Array:
        """The table that a manifest names."""
        return read_rows(group, layout, self.folder / manifest["table"])

    def require_disk_space(self, layout: Layout) -> None:
        """Two tables lie there while one replaces the other; of a run to go on with, one does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        more = 2 if self._read_manifest() is None else 1
        require_disk_space("checkpoint", self.folder, more * layout.num_states * layout.row_bytes)

    def write(
        self, group: ProcessGroup, layout: Layout, values: jax.Array, progress: dict[str, int]
    ) -> None:
        """Keeps a table and how far the run has come; the last stays until this is whole."""
        name = f"table-{max(progress.values()):06d}"
        before = group.run_collectively(self._read_manifest)
        try:
            group.run_collectively(lambda: self._remove_others(group, before))
            write_rows(group, layout, values, self.folder / name)
            about = {
                "format": FORMAT,
                **self.identity,
                "table": name,
                "progress": progress,
                "states": layout.num_states,
                "processes": group.num_processes,
                "rows a device": layout.rows_per_device,
            }
            group.run_collectively(lambda: self._write_manifest(group, about))
        except OSError as error:
            kept = "" if before is None else f"; {self.folder} keeps {before['table']}, go on there"
            group.run_collectively(lambda: self._remove_others(group, before))
            why = str(error).rstrip(".")
            if not why.startswith("cannot write"):
                why = f"cannot write the checkpoint: {why}"
            raise mark_collective(OSError(f"{why}{kept}.")) from None
        group.run_collectively(lambda: self._remove_others(group, about))

    def remove(self, group: ProcessGroup) -> None:
        """Takes the run away, once its table is kept elsewhere."""

        def remove() -> None:
            if group.rank == 0:
                (self.folder / MANIFEST).unlink(missing_ok=True)
            self._remove_others(group, None)

        group.run_collectively(remove)

    def _read_manifest(self) -> dict[str, Any] | None:
        path = self.folder / MANIFEST
        if not path.is_file():
            return None
        try:
            found = parse_object(path.read_bytes())
            if found["format"] != FORMAT:
                raise ValueError(f"its format is {found['format']!r}")
            name, progress = found["table"], found["progress"]
            if not (isinstance(name, str) and re.fullmatch(MATRIX_PATTERN, name)):
                raise ValueError(f"its table is {name!r}")
            if not isinstance(progress, dict) or not all(
                type(each) is int and each >= 0 for each in progress.values()
            ):
                raise ValueError(f"its progress is {progress!r}")
        except (ValueError, KeyError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else error
            raise InputError(f"{path} is no manifest of a run ({why}); remove it.") from None
        for what, wanted in self.identity.items():
            if found.get(what) != wanted:
                raise InputError(
                    f"{self.folder} keeps a run of another {what} ({found.get(what)}, and this is "
                    f"{wanted}); name another folder, or remove that one."
                )
        return dict(found)

    def _write_manifest(self, group: ProcessGroup, manifest: dict[str, Any]) -> None:
        if group.rank == 0:
            with write_atomically(self.folder / MANIFEST) as beside:
                beside.write_text(json.dumps(manifest, indent=1), encoding="utf-8")

    def _remove_others(self, group: ProcessGroup, manifest: dict[str, Any] | None) -> None:
        """Removes all tables but the one that a manifest names."""
        if group.rank == 0:
            for path in self.folder.glob(MATRIX_GLOB):
                if manifest is None or path.name != manifest["table"]:
                    shutil.rmtree(path)
