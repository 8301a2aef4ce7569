"""Files of transitions: one .npz of plain arrays, told from others by its format."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bisimetric._io import ARCHIVE_ERRORS, open_archive, parse_object, write_record
from bisimetric.errors import InputError
from bisimetric.mdp._validation import freeze
from bisimetric.transitions.episodes import observations_are_ids

if TYPE_CHECKING:
    from bisimetric.transitions import Transitions

FORMAT = "bisimetric transitions, version 1"
HEADER_FIELDS = ("num_states", "num_actions", "metadata")
OBSERVATION_FIELDS = ("observations", "next_observations")
REQUIRED_FIELDS = (*OBSERVATION_FIELDS, "actions", "rewards", "terminated", "truncated")
ID_FIELDS = ("states", "next_states")
NAME_FIELDS = ("names", "action_names")
OPTIONAL_FIELDS = (*ID_FIELDS, *NAME_FIELDS, "positions")


def write_transitions(transitions: Transitions, path: str | os.PathLike[str]) -> None:
    """Writes one `.npz`; the file appears whole or not at all."""
    about = {"format": FORMAT, **{name: getattr(transitions, name) for name in HEADER_FIELDS}}
    # Observations that are the ids are not written twice.
    left_out = ID_FIELDS if observations_are_ids(transitions) else ()
    found = {
        name: getattr(transitions, name)
        for name in (*REQUIRED_FIELDS, *OPTIONAL_FIELDS)
        if name not in left_out
    }
    arrays = {name: np.asarray(each) for name, each in found.items() if each is not None}
    write_record(path, about, arrays)


def read_fields(path: str | os.PathLike[str], observations: bool) -> dict[str, Any]:
    """What `write` wrote, by field; not checked beyond its format."""
    try:
        with open_archive(path) as opened:
            about = _read_header(path, opened)
            if about["format"] != FORMAT:
                raise wrong_format_error(path, f"its format is {about['format']!r}")
            lacking = [name for name in REQUIRED_FIELDS if name not in opened.files]
            if lacking:
                raise wrong_format_error(path, f"it has no {lacking[0]!r}")
            wanted = {*REQUIRED_FIELDS, *OPTIONAL_FIELDS} & set(opened.files)
            if not observations and wanted.issuperset(ID_FIELDS):
                wanted -= {*OBSERVATION_FIELDS}
            found: dict[str, Any] = {name: freeze(opened[name]) for name in wanted}
    except InputError:
        raise
    except ARCHIVE_ERRORS as error:
        raise InputError(
            f"{path} is cut short or no file of transitions ({error}); make it again with "
            "Transitions.save."
        ) from None
    for name, ids in zip(OBSERVATION_FIELDS, ID_FIELDS, strict=True):
        if name not in found:
            found[name] = found[ids]
    for name in NAME_FIELDS:
        if name in found:
            found[name] = tuple(np.ravel(found[name]).tolist())
    return {**found, **{name: about.get(name) for name in HEADER_FIELDS}}


def wrong_format_error(path: str | os.PathLike[str], reason: str) -> InputError:
    """What to raise of a file that holds something else."""
    return InputError(
        f"{path} is no file of transitions of bisimetric ({reason}); make one with Transitions.save."
    )


def is_transitions_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file says that it is one of transitions; only its label is read."""
    try:
        with open_archive(path) as opened:
            return str(_read_header(path, opened)["format"]).startswith(FORMAT.partition(",")[0])
    except (OSError, *ARCHIVE_ERRORS):
        return False


def _read_header(path: str | os.PathLike[str], archive: Any) -> dict[str, Any]:
    """The label of an archive: a JSON text with the format."""
    try:
        text = str(archive["about"])
    except KeyError:
        raise wrong_format_error(path, "it has no 'about'") from None
    try:
        about = parse_object(text)
    except json.JSONDecodeError:
        raise wrong_format_error(path, "it has no 'about'") from None
    except ValueError:
        about = {}
    if "format" not in about:
        raise wrong_format_error(path, "it has no 'format'")
    return about
