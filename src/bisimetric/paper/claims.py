"""The paper, claim by claim: what Castro (2020) states, and what was found.

`claims.toml` lists every definition, theorem, figure, experiment and claim with its code, tests and
command. `claims.json` records what full runs found; `measure` measures again, `quick` in minutes on
two cores. Claims about Atari are measured by the distribution bisimetric-atari and read from the
record here.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import bisimetric
from bisimetric._io import write_atomically
from bisimetric._progress import show_progress
from bisimetric.errors import InputError
from bisimetric.paper import sampling_claims, theory_claims
from bisimetric.paper.theory_claims import Outcome, Verdict

CLAIMS_FILE = Path(__file__).with_name("claims.toml")
RECORD_FILE = Path(__file__).with_name("claims.json")
NUM_MDPS, QUICK_NUM_MDPS = 200, 20
"""Random MDPs per theorem."""

THEORY_PREFIX = "check_"
"""The names of the outcomes of theorems, lemmas and examples begin with it."""

MARK = "<!-- claims: {} -->"
END_MARK = "<!-- end of claims -->"
CONTRARY = ("differs", "does not hold")
HEAD = "| claim | code and tests | result | verdict |\n|---|---|---|---|\n"


@dataclasses.dataclass(frozen=True)
class PaperClaim:
    """One statement of the paper.

    Attributes:
        name: its name in files and tables.
        section: the section of the report.
        claim: what the paper states, in Markdown.
        code: names of this library, below `bisimetric`.
        tests: files and folders that check it, below the root of the repository.
        command: how it is measured; empty where the tests are all.
        outcome: the name of its measured outcome; empty where it has none.
        verdict: of a claim without an outcome.
        result: of a claim without an outcome, in Markdown.
    """

    name: str
    section: str
    claim: str
    code: tuple[str, ...]
    tests: tuple[str, ...]
    command: str = ""
    outcome: str = ""
    verdict: Verdict = "not tested"
    result: str = ""


def load_claims() -> list[PaperClaim]:
    """Read the claims of the paper, in its order.

    Returns:
        The claims.

    >>> load_claims()[0].name
    'mdp'
    """
    with open(CLAIMS_FILE, "rb") as file:
        sections = tomllib.load(file)["section"]
    return [
        PaperClaim(
            section=section["title"],
            code=tuple(fields.pop("code")),
            tests=tuple(fields.pop("tests")),
            **fields,
        )
        for section in sections
        for fields in section["claim"]
    ]


def load_record(path: str | os.PathLike[str] = RECORD_FILE) -> dict[str, Outcome]:
    """Read recorded outcomes.

    Args:
        path: a file of `save_record`; default: that of the full runs.

    Returns:
        The outcomes by name.

    Raises:
        InputError: if the file holds none.

    >>> load_record()["check_pessimism"].verdict
    'holds'
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        return {name: Outcome(**fields) for name, fields in record["outcomes"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} holds no outcomes of claims ({error}).") from None


def save_record(
    path: str | os.PathLike[str], outcomes: Mapping[str, Outcome], metadata: Mapping[str, Any]
) -> None:
    """Write outcomes, atomically.

    Args:
        path: the file.
        outcomes: by name.
        metadata: how they were measured.
    """
    record = {
        "metadata": dict(metadata),
        "outcomes": {name: each._asdict() for name, each in sorted(outcomes.items())},
    }
    with write_atomically(Path(path)) as beside:
        text = json.dumps(record, indent=1, ensure_ascii=False)
        beside.write_text(text + "\n", encoding="utf-8")


def measure(folder: str | os.PathLike[str], *, quick: bool = False) -> dict[str, Outcome]:
    """Measure the claims on theory, sampling and the GridWorld, and save them as `claims.json`.

    Args:
        folder: where trained networks and the results are written; finished parts are reused.
        quick: minutes on two cores: fewer MDPs, seeds and updates.

    Returns:
        The outcomes by name.

    Raises:
        InputError: if the folder holds runs of other sizes.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"cannot save into {target}: it is a file; name a folder.")
    target.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    outcomes = measure_theory(QUICK_NUM_MDPS if quick else NUM_MDPS)
    from bisimetric.paper import learning_claims

    sizes = learning_claims.QUICK if quick else learning_claims.FULL
    runs = learning_claims.run(target, sizes)
    outcomes |= learning_claims.judge_all(runs)
    trained = [*runs.variants.values(), *runs.noisy.values()]
    metadata = {
        "quick": quick,
        "seconds": round(time.perf_counter() - start, 1),
        "training_seconds": round(sum(each.metadata["seconds"] for each in trained), 1),
        "training_devices": sorted({each.metadata["device"] for each in trained}),
        "bisimetric": bisimetric.__version__,
        "python": platform.python_version(),
    }
    save_record(target / "claims.json", outcomes, metadata)
    return outcomes


def measure_theory(num_mdps: int) -> dict[str, Outcome]:
    """Measure the definitions, theorems and examples: `theory_claims`, `sampling_claims`.

    Args:
        num_mdps: random MDPs per claim, with seeds 0, 1, ...

    Returns:
        The outcomes by name.
    """
    names = [claim.outcome for claim in load_claims() if claim.outcome.startswith(THEORY_PREFIX)]
    outcomes = {}
    with show_progress(len(names), "theorems and examples") as progress:
        for done, name in enumerate(names):
            module = theory_claims if hasattr(theory_claims, name) else sampling_claims
            outcomes[name] = getattr(module, name)(num_mdps)
            progress.set_position(done + 1, name.removeprefix(THEORY_PREFIX))
    return outcomes


def find_outcome(claim: PaperClaim, outcomes: Mapping[str, Outcome]) -> Outcome:
    """Return the outcome of a claim; its own where none is measured.

    Args:
        claim: the claim.
        outcomes: measured ones by name.

    Returns:
        The outcome.
    """
    if claim.outcome in outcomes:
        return outcomes[claim.outcome]
    return Outcome(claim.verdict, claim.result or "no record", "")


def find_contradictions(
    outcomes: Mapping[str, Outcome], record: Mapping[str, Outcome]
) -> list[str]:
    """Return the names of theorems and examples whose verdict differs from the recorded one.

    Args:
        outcomes: measured ones.
        record: recorded ones.

    Returns:
        The names.
    """
    return [
        name
        for name, each in outcomes.items()
        if name.startswith(THEORY_PREFIX)
        and name in record
        and each.verdict != record[name].verdict
    ]


def format_report(outcomes: Mapping[str, Outcome], record: Mapping[str, Outcome]) -> Iterator[str]:
    """Yield the report as lines of text.

    Args:
        outcomes: measured by this run.
        record: recorded ones, for the claims that this run does not measure.

    Yields:
        One block per claim.
    """
    section = ""
    for claim in load_claims():
        if claim.section != section:
            section = claim.section
            yield f"\n{section}"
        measured = claim.outcome in outcomes
        found = find_outcome(claim, outcomes if measured else record)
        note = "" if measured or not claim.outcome else ", recorded"
        before = record.get(claim.outcome)
        if measured and before is not None and before.verdict != found.verdict:
            note = f", full runs: {before.verdict}"
        yield f"  {claim.name}: {found.verdict}{note}"
        yield f"    {to_plain_text(claim.claim)}"
        runs = f" ({found.runs})" if found.runs else ""
        yield f"    -> {to_plain_text(found.text)}{runs}"
        source = claim.command or ", ".join(claim.tests)
        if source:
            yield f"    by {source}"


def to_plain_text(markdown: str) -> str:
    r"""Return Markdown without links, code marks and TeX commands of symbols.

    >>> to_plain_text(r"see [a](b.md): `#!math \\tilde d \\le d^\\pi`".replace("\\\\", "\\"))
    'see a: d~ <= d^pi'
    """
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown)
    text = text.replace("`#!math ", "`").replace("`", "").replace("\\tilde d", "d~")
    for symbol, plain in (("\\le ", "<= "), ("\\to ", "-> "), ("\\ln", "ln")):
        text = text.replace(symbol, plain)
    text = re.sub(r"\\l([Vv]ert|ceil) ?", "|", text)
    return re.sub(r" ?\\r([Vv]ert|ceil)", "|", text).replace("\\", "")


def format_tables(outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """Return the tables of the report in Markdown, by section.

    Args:
        outcomes: by name.

    Returns:
        The tables.
    """
    tables: dict[str, str] = {}
    for claim in load_claims():
        found = find_outcome(claim, outcomes)
        names = [f"`{name}`" for name in (*claim.code, *claim.tests)]
        if claim.command:
            names.append(f"`{claim.command}`")
        runs = f" ({found.runs})" if found.runs else ""
        verdict = f"**{found.verdict}**" if found.verdict in CONTRARY else found.verdict
        cells = (claim.claim, ", ".join(names), f"{_escape(found.text)}{runs}", verdict)
        row = " | ".join(cell or " " for cell in cells)
        tables[claim.section] = tables.get(claim.section, HEAD) + f"| {row} |\n"
    return tables


def _escape(text: str) -> str:
    """Return text for a cell of a table: bars are written as entities."""
    return text.replace("|", "&#124;")


def render_page(text: str, outcomes: Mapping[str, Outcome]) -> str:
    """Return a page with its tables replaced by those of the outcomes.

    Args:
        text: the page; a table is between the comments `claims: SECTION` and `end of claims`.
        outcomes: by name.

    Returns:
        The page.

    Raises:
        InputError: if the page lacks a section.
    """
    for section, table in format_tables(outcomes).items():
        start, mark = MARK.format(section), f"\n{END_MARK}"
        if start not in text:
            raise InputError(f"the page has no {start}; add it, and {END_MARK} after the table.")
        before, _, rest = text.partition(start)
        after = rest.partition(mark)[2]
        text = f"{before}{start}\n{table}{mark.lstrip()}{after}"
    return text
