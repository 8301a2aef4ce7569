"""Atomic propositions of states, and labels of choices, as in labelled MDPs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError, suggest_names

if TYPE_CHECKING:
    from bisimetric.mdp import MDP

MAX_CODE_BITS = 62
"""Labels that one integer encodes before the codes are renumbered."""


class StateLabels(Mapping[str, NDArray[np.bool_]]):
    """The labels (atomic propositions) of the states: from each label to a read-only mask (S,).

    Attributes:
        num_states: the number of states.

    >>> labels = StateLabels({"goal": np.array([False, True, True])}, 3)
    >>> labels["goal"], labels.of(1), labels.of(0)
    (array([False,  True,  True]), ('goal',), ())
    >>> labels.classes
    array([0, 1, 1])
    """

    def __init__(self, masks: Mapping[str, NDArray[np.bool_]], num_states: int) -> None:
        self._masks = dict(masks)
        self.num_states = num_states
        for mask in self._masks.values():
            mask.flags.writeable = False

    def __getitem__(self, label: str) -> NDArray[np.bool_]:
        if label not in self._masks:
            raise KeyError(f"no label {label!r}{suggest_names(label, self._masks)}")
        return self._masks[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self._masks)

    def __len__(self) -> int:
        return len(self._masks)

    def __repr__(self) -> str:
        counts = (f"{name}: {int(mask.sum()):,}" for name, mask in self._masks.items())
        return f"StateLabels({', '.join(counts)})"

    def of(self, state: int) -> tuple[str, ...]:
        """Return the labels of a state.

        Args:
            state: an id.

        Returns:
            The names, in the order of the mapping.
        """
        return tuple(name for name, mask in self._masks.items() if mask[state])

    @functools.cached_property
    def classes(self) -> NDArray[np.int64]:
        """(S,), equal for states with equal label sets, numbered by first appearance."""
        codes = np.zeros(self.num_states, np.int64)
        bits = 0
        for mask in self._masks.values():
            codes = 2 * codes + mask
            bits += 1
            if bits == MAX_CODE_BITS:
                codes = np.unique(codes, return_inverse=True)[1]
                bits = int(codes.max()).bit_length()
        return number_by_appearance(codes)


def number_by_appearance(*codes: NDArray[Any]) -> NDArray[np.int64]:
    """Number the distinct combinations of integer codes (n,), in the order of appearance.

    >>> number_by_appearance(np.array([7, 2, 7]), np.array([0, 0, 1]))
    array([0, 1, 2])
    """
    combined = np.zeros(len(codes[0]), np.int64)
    for code in codes:
        _, part = np.unique(code, return_inverse=True)
        combined = combined * (int(part.max()) + 1) + part
        _, first, combined = np.unique(combined, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return np.asarray(number[combined])


def compute_comparison_classes(mdp: MDP, *, lax: bool = False) -> NDArray[np.int64]:
    """Compute the classes (S,) between which no two states are comparable.

    States are comparable if they have the same label set and, unless `lax`, the same choice labels
    among their available actions. Otherwise they are at the diameter bound.
    """
    if lax or mdp.available is None:
        return mdp.label_classes
    groups = mdp.choice_groups
    offered = np.zeros((mdp.num_states, int(groups.max()) + 1), np.bool_)
    for action, group in enumerate(groups.tolist()):
        offered[:, group] |= mdp.available[:, action]
    if offered.all():
        return mdp.label_classes
    packed = np.packbits(offered, axis=1)
    sets = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    return number_by_appearance(mdp.label_classes, np.unique(sets, return_inverse=True)[1])


def reject_labels(caller: str, mdp: MDP) -> None:
    """Raise InputError if the MDP has labels of states or choices, which a caller would ignore.

    Args:
        caller: begins the message.
        mdp: the MDP.
    """
    if mdp.has_labels or mdp.choice_labels is not None:
        raise InputError(
            f"{caller}: labels of states and choices are not supported here; use bisimetric.exact, "
            "or mdp.replace(labels=None, choice_labels=None)."
        )


def validate_labels(labels: Any, num_states: int) -> StateLabels | None:
    """Return the labels of the states from masks by name, or from one label set per state."""
    if labels is None:
        return None
    if isinstance(labels, StateLabels) and labels.num_states == num_states:
        return labels
    if isinstance(labels, Mapping):
        masks = {str(name): _as_mask(str(name), mask, num_states) for name, mask in labels.items()}
        return StateLabels(masks, num_states)
    try:
        sets = [(each,) if isinstance(each, str) else tuple(each) for each in labels]
        valid = not isinstance(labels, str) and all(
            isinstance(name, str) for each in sets for name in each
        )
    except TypeError:
        sets, valid = [], False
    if not valid:
        raise InputError(
            f"MDP: labels are of type {type(labels).__name__} and must be a mapping from each "
            "label to a mask (S,), or a sequence of one set of strings per state."
        )
    if len(sets) != num_states:
        raise InputError(f"MDP: there are {len(sets)} label sets and must be {num_states}.")
    names = dict.fromkeys(name for each in sets for name in each)
    return StateLabels(
        {name: np.array([name in each for each in sets], np.bool_) for name in names}, num_states
    )


def _as_mask(name: str, mask: ArrayLike, num_states: int) -> NDArray[np.bool_]:
    array = np.array(mask)
    if array.dtype != np.bool_ or array.shape != (num_states,):
        raise InputError(
            f"MDP: labels[{name!r}] is {array.dtype} of shape {array.shape} and must be bool of "
            f"shape ({num_states},)."
        )
    return array


def validate_choice_labels(
    labels: Sequence[str] | None, num_actions: int
) -> tuple[str, ...] | None:
    """Return one label per action, or None where no two are equal."""
    if labels is None:
        return None
    texts = () if isinstance(labels, str) else tuple(str(label) for label in labels)
    if len(texts) != num_actions:
        raise InputError(
            f"MDP: choice_labels are {labels!r} and must be {num_actions} strings, one per action."
        )
    return None if len(set(texts)) == num_actions else texts


def merge_labels(parts: Iterable[tuple[StateLabels | None, int]]) -> StateLabels | None:
    """Concatenate the labels of several MDPs, given with their numbers of states.

    A label that an MDP does not have holds in none of its states.

    >>> merge_labels([(StateLabels({"x": np.array([True])}, 1), 1), (None, 2)])["x"]
    array([ True, False, False])
    """
    found = list(parts)
    names = dict.fromkeys(name for labels, _ in found for name in labels or ())
    if not names:
        return None
    masks = {
        name: np.concatenate(
            [
                labels[name] if labels is not None and name in labels else np.zeros(size, np.bool_)
                for labels, size in found
            ]
        )
        for name in names
    }
    return StateLabels(masks, sum(size for _, size in found))
