"""Transitions.from_batches: the steps of a simulation come back from its time-major arrays."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.transitions import Transitions
from tests.property_testing import scaled


class Rollout:
    """A simulation of N environments whose observations are all distinct.

    Attributes:
        arrays: the recorded arrays (T, N), and `last_observations` and `last_dones` (N,).
        steps: per environment and row, the true step as (observation, action, reward, next
            observation, terminated, truncated); None where the row only resets.
    """

    def __init__(self, num_steps: int, num_envs: int, autoreset: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        fields = ("observations", "actions", "rewards", "next_observations")
        names = (*fields, "terminated", "truncated", "dones", "starts", "discounts")
        columns: dict[str, list[list[float]]] = {name: [] for name in names}
        self.steps: list[list[Any]] = [[] for _ in range(num_envs)]
        fresh = iter(range(10_000))
        current = [next(fresh) for _ in range(num_envs)]
        was_done = [bool(rng.random() < 0.2) for _ in range(num_envs)]
        for _ in range(num_steps):
            row: dict[str, list[float]] = {name: [] for name in names}
            for env in range(num_envs):
                observation, action = current[env], int(rng.integers(3))
                reward, following = float(rng.integers(4)), next(fresh)
                ends = rng.random() < 0.4
                terminated = bool(ends and rng.random() < 0.5)
                truncated = bool(ends and not terminated)
                true_step: Any = (observation, action, reward, following, terminated, truncated)
                if autoreset == "next_step" and was_done[env]:
                    terminated = truncated = False
                    reward, true_step = 0.0, None
                row["starts"].append(was_done[env])
                was_done[env] = terminated or truncated
                self.steps[env].append(true_step)
                recorded = (observation, action, reward, following, terminated, truncated)
                for name, value in zip(names, recorded, strict=False):
                    row[name].append(value)
                row["dones"].append(was_done[env])
                row["discounts"].append(0.0 if terminated else 0.99)
                resets_at_once = autoreset == "same_step" and was_done[env]
                current[env] = next(fresh) if resets_at_once else following
            for name, values in row.items():
                columns[name].append(values)
        self.arrays: dict[str, NDArray[Any]] = {name: np.array(a) for name, a in columns.items()}
        self.arrays["discounts"] = self.arrays["discounts"].astype(np.float32)
        self.arrays["last_observations"] = np.array(current)
        self.arrays["last_dones"] = np.array(was_done)

    def expect(self, *, final: bool, last_step: bool, ends_known: bool) -> list[tuple[Any, ...]]:
        """Return the steps that the arrays determine, by a loop over the environments.

        Args:
            final: whether the final observation of an episode was recorded.
            last_step: whether the successor of the last step was recorded.
            ends_known: whether the end of the last step was recorded.
        """
        expected = []
        for steps in self.steps:
            kept: list[tuple[Any, ...]] = []
            for t, step in enumerate(steps):
                is_last = t == len(steps) - 1
                if step is None or (is_last and not ends_known):
                    continue
                s, a, r, following, terminated, truncated = step
                known = (final or not (terminated or truncated)) and (last_step or not is_last)
                if known:
                    kept.append((t, s, a, r, following, terminated, truncated))
                elif terminated:
                    kept.append((t, s, a, r, s, terminated, truncated))
            for i, (t, s, a, r, following, terminated, truncated) in enumerate(kept):
                continues = i + 1 < len(kept) and kept[i + 1][0] == t + 1
                cut = truncated or not (continues or terminated)
                expected.append((s, a, r, following, terminated, cut))
        return expected


def to_list(t: Transitions) -> list[tuple[Any, ...]]:
    columns = (t.observations, t.actions, t.rewards, t.next_observations, t.terminated, t.truncated)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def check(fields: dict[str, Any], expected: list[tuple[Any, ...]]) -> None:
    if expected:
        assert to_list(Transitions.from_batches(**fields)) == expected
    else:
        with pytest.raises(InputError, match="steps has a known successor"):
            Transitions.from_batches(**fields)


class TestAgainstALoop:
    @settings(max_examples=scaled(200), deadline=None)
    @given(
        num_steps=st.integers(1, 7),
        num_envs=st.integers(1, 3),
        autoreset=st.sampled_from(["same_step", "next_step"]),
        seed=st.integers(0, 2**32 - 1),
        ends=st.sampled_from(
            ["flags", "dones", "dones and terminated", "discounts", "dones and discounts"]
        ),
        refer_to=st.sampled_from(["step", "observation"]),
        successors=st.sampled_from(["none", "last", "row", "next"]),
        column=st.booleans(),
    )
    def test_all_conventions(
        self,
        num_steps: int,
        num_envs: int,
        autoreset: str,
        seed: int,
        ends: str,
        refer_to: str,
        successors: str,
        column: bool,
    ) -> None:
        rollout = Rollout(num_steps, num_envs, autoreset, seed)
        arrays = rollout.arrays
        shifted = "dones" in ends and refer_to == "observation"
        # Only dones of observations tell whether the first row resets.
        resets_first = any(steps[0] is None for steps in rollout.steps)
        assume(shifted or not resets_first)
        fields: dict[str, Any] = {name: arrays[name] for name in ("actions", "rewards")}
        fields |= {"observations": arrays["observations"], "autoreset": autoreset}
        if "dones" in ends:
            dones = arrays["dones" if refer_to == "step" else "starts"]
            fields |= {"dones": dones.astype(np.float32), "dones_refer_to": refer_to}
        if ends == "flags":
            fields |= {"terminated": arrays["terminated"], "truncated": arrays["truncated"]}
        elif ends == "dones":
            fields["truncated"] = arrays["truncated"]
        elif ends == "dones and terminated":
            fields["terminated"] = arrays["terminated"]
        else:
            fields["discounts"] = arrays["discounts"]
            if ends == "discounts":
                fields["truncated"] = arrays["truncated"]
        if column:
            names = {"actions", "rewards", "dones", "terminated", "truncated", "discounts"}
            fields |= {name: fields[name][..., None] for name in names & set(fields)}
        if successors == "last":
            fields["last_observations"] = arrays["last_observations"]
        elif successors == "row":
            both = (arrays["observations"], arrays["last_observations"][None])
            fields["observations"] = np.concatenate(both)
        elif successors == "next":
            fields["next_observations"] = arrays["next_observations"]
        if shifted and successors != "none":
            fields["last_dones"] = arrays["last_dones"]
        expected = rollout.expect(
            final=successors == "next" or autoreset == "next_step",
            last_step=successors != "none",
            ends_known=not shifted or successors != "none",
        )
        check(fields, expected)

    @settings(max_examples=scaled(50), deadline=None)
    @given(num_steps=st.integers(2, 6), seed=st.integers(0, 2**32 - 1))
    def test_images_and_continuous_actions(self, num_steps: int, seed: int) -> None:
        rollout = Rollout(num_steps, 2, "same_step", seed)
        fields: dict[str, Any] = {**rollout.arrays, "dones_refer_to": "step"}
        for name in ("starts", "last_dones", "discounts", "next_observations", "terminated"):
            fields.pop(name)
        ids = Transitions.from_batches(**fields)
        encoding = np.random.default_rng(seed).integers(256, size=(1000, 4, 3), dtype=np.uint8)
        for name in ("observations", "last_observations"):
            fields[name] = encoding[fields[name]]
        fields["actions"] = fields["actions"].astype(np.float32)[..., None] * [1.0, -0.5]
        images = Transitions.from_batches(**fields)
        assert images.observations.dtype == np.uint8
        np.testing.assert_array_equal(images.observations, encoding[ids.states])
        np.testing.assert_array_equal(images.next_observations, encoding[ids.next_states])
        np.testing.assert_array_equal(images.actions[:, 1], -0.5 * ids.actions)
        np.testing.assert_array_equal(images.truncated, ids.truncated)


OBSERVATIONS = np.arange(8).reshape(4, 2)
ZEROS = np.zeros((4, 2))
LAST = np.array([8, 9])


def rows(*steps: tuple[int, int]) -> NDArray[np.float64]:
    """Return flags (4, 2) that are set in some rows and environments."""
    flags = np.zeros((4, 2))
    for t, env in steps:
        flags[t, env] = 1
    return flags


class TestByHand:
    def test_cleanrl(self) -> None:
        t = Transitions.from_batches(
            OBSERVATIONS,
            ZEROS,
            ZEROS,
            dones=rows((0, 0), (2, 1)),
            dones_refer_to="observation",
            last_observations=LAST,
            last_dones=np.array([1.0, 0.0]),
        )
        assert t.states is not None
        assert t.states.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
        assert t.successors.tolist() == [2, 4, 6, 10, 3, 10, 7, 9]
        assert t.truncated.tolist() == [False] * 7 + [True]
        assert [len(episode) for episode in t.episodes()] == [4, 2, 2]

    def test_a_truncated_step_before_a_reset_is_dropped(self) -> None:
        given_flags: dict[str, Any] = {"terminated": ZEROS, "truncated": rows((2, 1))}
        t = Transitions.from_batches(
            OBSERVATIONS, ZEROS, ZEROS, last_observations=LAST, **given_flags
        )
        assert t.observations.tolist() == [0, 2, 4, 6, 1, 3, 7]
        assert t.next_observations.tolist() == [2, 4, 6, 8, 3, 5, 9]
        assert t.truncated.tolist() == [False, False, False, True, False, True, True]

    def test_attributes(self) -> None:
        t = Transitions.from_batches(
            OBSERVATIONS, ZEROS, ZEROS, terminated=ZEROS, num_actions=3, metadata={"seed": 1}
        )
        assert (len(t), t.num_actions, t.metadata) == (6, 3, {"seed": 1})

    def test_lists_and_constant_discounts(self) -> None:
        t = Transitions.from_batches(
            [[0.5]], [[0]], [[1]], discounts=[[0.97]], last_observations=[1.5]
        )
        assert to_list(t) == [(0.5, 0, 1.0, 1.5, False, True)]


@pytest.mark.parametrize(
    ("mode", "autoreset"),
    [(AutoresetMode.SAME_STEP, "same_step"), (AutoresetMode.NEXT_STEP, "next_step")],
)
@pytest.mark.parametrize("cleanrl", [True, False])
def test_vector_environments(mode: AutoresetMode, autoreset: str, cleanrl: bool) -> None:
    def make() -> Any:
        return gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=5)

    environments = SyncVectorEnv([make] * 3, autoreset_mode=mode)
    rng = np.random.default_rng(0)
    names = ("observations", "actions", "rewards", "terminated", "truncated", "dones")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    observations, _ = environments.reset(seed=0)
    done = np.zeros(3, np.bool_)
    for _ in range(200):
        action = rng.integers(4, size=3)
        following, reward, terminated, truncated, _ = environments.step(action)
        row = (observations, action, reward, terminated, truncated, done)
        for name, value in zip(names, row, strict=True):
            columns[name].append(np.array(value))
        observations, done = following, terminated | truncated
    environments.close()
    fields: dict[str, Any] = {name: np.array(column) for name, column in columns.items()}
    fields["autoreset"] = autoreset
    if cleanrl:
        fields.pop("truncated")
        fields |= {"dones_refer_to": "observation", "last_dones": done}
    else:
        fields.pop("dones")
    steps = Transitions.from_batches(**fields, last_observations=observations, num_states=16)
    dynamics = make().unwrapped.P
    for s, a, r, following, terminated, _ in to_list(steps):
        ((_, successor, reward, ends),) = dynamics[s][a]
        assert (r, terminated) == (reward, ends)
        assert terminated or following == successor
    num_terminated = int(np.sum(columns["terminated"]))
    assert steps.terminated.sum() == num_terminated > 20
    assert len(steps) > 300


NAN = np.where(rows((2, 1)) > 0, np.nan, 0.0)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"terminated": None}, "nothing marks the ends of episodes; give terminated, dones or disc"),
    ({"discounts": ZEROS}, "terminated and discounts both mark termination; give one of them"),
    ({"dones": ZEROS}, r"dones_refer_to is None; give \"step\" where .* as in CleanRL"),
    ({"dones": ZEROS, "dones_refer_to": "end"}, "dones_refer_to is 'end'; give"),
    ({"last_dones": [0, 0]}, 'last_dones needs dones with dones_refer_to="observation"'),
    (
        {"dones": ZEROS, "dones_refer_to": "step", "last_dones": [0, 0]},
        'last_dones needs dones with dones_refer_to="observation"',
    ),
    (
        {"dones": ZEROS, "dones_refer_to": "observation", "last_observations": LAST},
        "whether the last step ended its episode is unknown; give last_dones",
    ),
    (
        {"dones": ZEROS, "dones_refer_to": "observation", "last_dones": [0, 2]},
        r"last_dones\[1\] is 2 and must be true or false",
    ),
    (
        {"dones": ZEROS, "dones_refer_to": "observation", "last_dones": [0]},
        r"last_dones have shape \(1,\) and must be \(2,\)",
    ),
    (
        {"terminated": rows((1, 1)), "dones": rows((2, 1)), "dones_refer_to": "step"},
        r"terminated\[1, 1\] ends an episode and dones do not; check dones_refer_to",
    ),
    (
        {"truncated": rows((3, 0)), "dones": ZEROS, "dones_refer_to": "step"},
        r"truncated\[3, 0\] ends an episode and dones do not",
    ),
    (
        {"terminated": None, "discounts": 1 - rows((0, 0)), "dones": ZEROS}
        | {"dones_refer_to": "step"},
        r"discounts\[0, 0\] ends an episode and dones do not",
    ),
    (
        {"terminated": None, "discounts": 1 - rows((1, 0)) / 2},
        r"discounts\[1, 0\] is 0.5 and must be 0, .* here 1, at most 1",
    ),
    ({"terminated": None, "discounts": ZEROS + 2}, r"discounts\[0, 0\] is 2 and must be 0"),
    ({"terminated": None, "discounts": ZEROS - 1}, r"discounts\[0, 0\] is -1 and must be 0"),
    ({"terminated": rows((1, 1)) * 3}, r"terminated\[1, 1\] is 3.0 and must be true or false"),
    ({"terminated": ZEROS[:3]}, r"terminated have shape \(3, 2\) and must be \(4, 2\)"),
    ({"rewards": NAN}, r"rewards\[2, 1\] is nan and must be finite"),
    ({"rewards": ZEROS[:, 0]}, r"rewards have shape \(4,\) and must be \(steps, environments\)"),
    ({"rewards": ZEROS[:0]}, r"rewards have shape \(0, 2\) and must be .* at least one of each"),
    ({"rewards": [["a"]]}, "rewards are <U1 and must be numbers"),
    ({"rewards": [[1], [1, 2]]}, "rewards must be an array of numbers"),
    ({"observations": OBSERVATIONS[:2]}, r"observations have shape \(2, 2\) and must have 4 or 5"),
    ({"observations": OBSERVATIONS[:, :1]}, r"observations have shape \(4, 1\) and must have 4"),
    ({"observations": np.arange(4)}, r"observations have shape \(4,\) and must have 4 or 5 steps"),
    (
        {"observations": np.arange(10).reshape(5, 2), "last_observations": LAST},
        "observations have 5 rows, of which the last follows the last step; leave out",
    ),
    ({"last_observations": [0]}, r"last_observations have shape \(1,\) and must be \(2,\)"),
    (
        {"next_observations": OBSERVATIONS, "last_observations": LAST},
        "next_observations include those after the last step",
    ),
    ({"next_observations": OBSERVATIONS[:3]}, r"next_observations have shape \(3, 2\)"),
    ({"actions": ZEROS[:3]}, r"actions have shape \(3, 2\) and must be \(4, 2\)"),
    ({"actions": ZEROS[:, 0]}, r"actions have shape \(4,\) and must be \(4, 2\)"),
    ({"actions": ZEROS[..., None, None]}, r"actions have shape .* and must be \(4, 2, 1\)"),
    ({"actions": np.zeros((4, 2, 3), int)}, "several numbers per step; number their combinations"),
    ({"actions": ZEROS + 0.5}, r"actions\[0\] is 0.5 and must be a whole number"),
    ({"autoreset": "never"}, 'autoreset is \'never\' and must be "same_step" or "next_step"'),
    (
        {"autoreset": "next_step", "terminated": rows((1, 1), (2, 1))},
        'environment 1 ends an episode at step 2, which resets it .* use "same_step"',
    ),
    (
        {"observations": OBSERVATIONS[:1], "actions": ZEROS[:1], "rewards": ZEROS[:1]}
        | {"terminated": ZEROS[:1]},
        "none of the 2 steps has a known successor; give last_observations or next_obs",
    ),
    ({"observations": -OBSERVATIONS}, r"observations\[1\] is -2 and must be a whole number"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_input(changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"observations": OBSERVATIONS, "actions": ZEROS, "rewards": ZEROS}
    with pytest.raises(InputError, match=message):
        Transitions.from_batches(**(fields | {"terminated": ZEROS} | changes))
