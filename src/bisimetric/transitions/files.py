"""Files of transitions: one .npz of plain arrays, told from others by its format."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bisimetric.errors import InputError
from bisimetric.files import UNREADABLE, archive, parse_object, write_record
from bisimetric.mdp.checks import frozen
from bisimetric.transitions.joining import observed_ids

if TYPE_CHECKING:
    from bisimetric.transitions import Transitions

FORMAT = "bisimetric transitions, version 1"
ABOUT = ("num_states", "num_actions", "made")
OBSERVED = ("observations", "next_observations")
REQUIRED = (*OBSERVED, "actions", "rewards", "terminated", "truncated")
IDS = ("states", "next_states")
NAMES = ("names", "action_names")
OPTIONAL = (*IDS, *NAMES, "positions")


def write(steps: Transitions, path: str | os.PathLike[str]) -> None:
    """Writes one `.npz`; the file appears whole or not at all."""
    about = {"format": FORMAT, **{name: getattr(steps, name) for name in ABOUT}}
    # Observations that are the ids are not written twice.
    left_out = IDS if observed_ids(steps) else ()
    found = {name: getattr(steps, name) for name in (*REQUIRED, *OPTIONAL) if name not in left_out}
    arrays = {name: np.asarray(each) for name, each in found.items() if each is not None}
    write_record(path, about, arrays)


def fields(path: str | os.PathLike[str], observations: bool) -> dict[str, Any]:
    """What `write` wrote, by field; not checked beyond its format."""
    try:
        with archive(path) as opened:
            about = _about(path, opened)
            if about["format"] != FORMAT:
                raise refused(path, f"its format is {about['format']!r}")
            lacking = [name for name in REQUIRED if name not in opened.files]
            if lacking:
                raise refused(path, f"it has no {lacking[0]!r}")
            wanted = {*REQUIRED, *OPTIONAL} & set(opened.files)
            if not observations and wanted.issuperset(IDS):
                wanted -= {*OBSERVED}
            found: dict[str, Any] = {name: frozen(opened[name]) for name in wanted}
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"{path} is cut short or no file of transitions ({error}); make it again with "
            "Transitions.save."
        ) from None
    for name, ids in zip(OBSERVED, IDS, strict=True):
        if name not in found:
            found[name] = found[ids]
    for name in NAMES:
        if name in found:
            found[name] = tuple(np.ravel(found[name]).tolist())
    return {**found, **{name: about.get(name) for name in ABOUT}}


def refused(path: str | os.PathLike[str], what: str) -> InputError:
    """What to raise of a file that holds something else."""
    return InputError(
        f"{path} is no file of transitions of bisimetric ({what}); make one with Transitions.save."
    )


def holds_transitions(path: str | os.PathLike[str]) -> bool:
    """Whether a file says that it is one of transitions; only its label is read."""
    try:
        with archive(path) as opened:
            return str(_about(path, opened)["format"]).startswith(FORMAT.partition(",")[0])
    except (OSError, *UNREADABLE):
        return False


def _about(path: str | os.PathLike[str], archive: Any) -> dict[str, Any]:
    """The label of an archive: a JSON text with the format."""
    try:
        text = str(archive["about"])
    except KeyError:
        raise refused(path, "it has no 'about'") from None
    try:
        about = parse_object(text)
    except json.JSONDecodeError:
        raise refused(path, "it has no 'about'") from None
    except ValueError:
        about = {}
    if "format" not in about:
        raise refused(path, "it has no 'format'")
    return about
