"""Checkpoints of a sharded run: a folder with a manifest that names the last complete matrix.

A matrix is written beside the last one. Once all processes have written their rows, the first one
replaces the manifest, and the old matrix is removed. So whenever a process ends, the manifest names
a complete matrix; others are removed before the next one is written.
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
MATRIX_GLOB = "matrix-[0-9]*"
MATRIX_PATTERN = r"matrix-\d+"
FORMAT = "bisimetric sharded run, version 1"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The folder of a run's checkpoints, and the identity of that run.

    Attributes:
        folder: the folder.
        checkpoint_every: seconds between two checkpoints.
        identity: hash of the MDP, kind, dtype and version, which a resumed run must have.
    """

    folder: Path
    checkpoint_every: float
    identity: dict[str, str]

    def read_manifest(self, group: ProcessGroup) -> dict[str, Any]:
        """Return the valid manifest of a run to resume; raise InputError if there is none."""

        def read() -> dict[str, Any]:
            manifest = self._find_manifest()
            if manifest is None:
                raise InputError(
                    f"cannot resume from {self.folder}: it holds no checkpoint; start a new run."
                )
            return manifest

        manifest = group.run_collectively(read)
        digest = hashlib.sha256(json.dumps(manifest).encode()).hexdigest()[:16]
        group.require_agreement({"checkpoint": digest}, str(self.folder))
        return manifest

    def require_unused(self) -> None:
        """Raise InputError if the folder holds a run, which new checkpoints would replace."""
        if (self.folder / MANIFEST).exists():
            raise InputError(
                f"{self.folder} holds a run; resume from it, or use another folder for checkpoints."
            )

    def read_values(
        self, group: ProcessGroup, layout: Layout, manifest: dict[str, Any]
    ) -> jax.Array:
        """Read the matrix that a manifest names."""
        return read_rows(group, layout, self.folder / manifest["matrix"])

    def require_disk_space(self, layout: Layout) -> None:
        """Raise InputError unless two matrices fit, of which a resumed run has written one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        num_matrices = 2 if self._find_manifest() is None else 1
        needed = num_matrices * layout.num_states * layout.row_bytes
        require_disk_space("checkpoint", self.folder, needed)

    def write(
        self, group: ProcessGroup, layout: Layout, values: jax.Array, progress: dict[str, int]
    ) -> None:
        """Write a matrix and the progress of a run; keep the last one until this is complete."""
        name = f"matrix-{max(progress.values()):06d}"
        previous = group.run_collectively(self._find_manifest)
        try:
            group.run_collectively(lambda: self._remove_others(group, previous))
            write_rows(group, layout, values, self.folder / name)
            manifest = {
                "format": FORMAT,
                **self.identity,
                "matrix": name,
                "progress": progress,
                "states": layout.num_states,
                "processes": group.num_processes,
                "rows per device": layout.rows_per_device,
            }
            group.run_collectively(lambda: self._write_manifest(group, manifest))
        except OSError as error:
            remedy = ""
            if previous is not None:
                remedy = f"; {self.folder} still holds {previous['matrix']}, resume from there"
            group.run_collectively(lambda: self._remove_others(group, previous))
            reason = str(error).rstrip(".")
            if not reason.startswith("cannot write"):
                reason = f"cannot write the checkpoint: {reason}"
            raise mark_collective(OSError(f"{reason}{remedy}.")) from None
        group.run_collectively(lambda: self._remove_others(group, manifest))

    def remove(self, group: ProcessGroup) -> None:
        """Remove the run, once its result is written."""

        def remove() -> None:
            if group.rank == 0:
                (self.folder / MANIFEST).unlink(missing_ok=True)
            self._remove_others(group, None)

        group.run_collectively(remove)

    def _find_manifest(self) -> dict[str, Any] | None:
        """Return the valid manifest of the run in the folder; None if there is none."""
        path = self.folder / MANIFEST
        if not path.is_file():
            return None
        try:
            found = parse_object(path.read_bytes())
            if found["format"] != FORMAT:
                raise ValueError(f"its format is {found['format']!r}")
            name, progress = found["matrix"], found["progress"]
            if not (isinstance(name, str) and re.fullmatch(MATRIX_PATTERN, name)):
                raise ValueError(f"its matrix is {name!r}")
            if not isinstance(progress, dict) or not all(
                type(count) is int and count >= 0 for count in progress.values()
            ):
                raise ValueError(f"its progress is {progress!r}")
        except (ValueError, KeyError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else error
            raise InputError(f"{path} is not a manifest of a run ({reason}); remove it.") from None
        for name, expected in self.identity.items():
            if found.get(name) != expected:
                raise InputError(
                    f"{self.folder} holds a run with another {name} ({found.get(name)}, and this "
                    f"one has {expected}); resume it with the same {name}, or start a new run."
                )
        return dict(found)

    def _write_manifest(self, group: ProcessGroup, manifest: dict[str, Any]) -> None:
        if group.rank == 0:
            with write_atomically(self.folder / MANIFEST) as temporary:
                temporary.write_text(json.dumps(manifest, indent=1), encoding="utf-8")

    def _remove_others(self, group: ProcessGroup, manifest: dict[str, Any] | None) -> None:
        """Remove all matrices except the one that a manifest names."""
        if group.rank == 0:
            for path in self.folder.glob(MATRIX_GLOB):
                if manifest is None or path.name != manifest["matrix"]:
                    shutil.rmtree(path)
