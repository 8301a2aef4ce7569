"""The command line: parse, call, save. Every mistake is one line, exit code 2, no traceback."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import tyro
from tyro.extras import SubcommandApp

from bisimetric import __version__
from bisimetric.cli.commands import exact, learned, relation, reproduce, rollout, sampled, sharded
from bisimetric.cli.commands import reproduce as demo
from bisimetric.cli.commands import show as explorer
from bisimetric.cli.commands import show as tables
from bisimetric.cli.commands import show as worlds
from bisimetric.cli.commands.atari import learn, show_episode, sweep, train_agent
from bisimetric.cli.commands.uses import aggregate, bonus, compress, embed, transfer
from bisimetric.cli.options import program_name
from bisimetric.cli.output import describe_interrupt
from bisimetric.cli.parsing import ParseError, capture_parse_errors
from bisimetric.errors import Diverged, InputError, NotConverged

DESCRIPTION = """How alike are two states of a Markov decision process, by how they behave?

bisimetric measures it with bisimulation distances: they bound how much the values of two states can
differ. A table is exact to a proven error, or comes from experience and says how much that proves.
`bisimetric --version` prints the version."""

GROUP_HELP = {
    "exact": "Distances between all states of a world, each to a proven error.",
    "relation": "The classes of states that behave exactly alike.",
    "sharded": "Exact distances that several processes compute and hold together.",
    "sampled": "Distances from experience: of a world or a data set, pair by pair.",
    "learned": "Distances that a network learns: of a world or a data set, an approximation.",
    "uses": "What a distance is good for, with what it promises and what it kept.",
    "atari": "Games that a trained agent plays: its metric, how that looks, and what it shows.",
    "reproduce": "Figures and experiments of the paper.",
}

COMMANDS: dict[tuple[str, ...], Callable[..., int | None]] = {
    ("worlds",): worlds.worlds,
    ("exact", "bisimulation"): exact.bisimulation,
    ("exact", "on-policy"): exact.on_policy,
    ("exact", "lax"): exact.lax,
    ("exact", "mico"): exact.mico,
    ("relation", "bisimulation"): relation.bisimulation,
    ("relation", "on-policy"): relation.on_policy,
    ("relation", "lax"): relation.lax,
    ("sharded", "bisimulation"): sharded.bisimulation,
    ("sharded", "on-policy"): sharded.on_policy,
    ("spread",): sharded.launch,
    ("sampled", "bisimulation"): sampled.bisimulation,
    ("sampled", "on-policy"): sampled.on_policy,
    ("learned", "bisimulation"): learned.bisimulation,
    ("learned", "on-policy"): learned.on_policy,
    ("learned", "mico"): learned.mico,
    ("uses", "aggregate"): aggregate.aggregate,
    ("uses", "compress"): compress.compress,
    ("uses", "embed"): embed.embed,
    ("uses", "explore"): bonus.bonus,
    ("uses", "transfer"): transfer.transfer,
    ("rollout",): rollout.rollout,
    ("explain",): tables.explain,
    ("explore",): explorer.view,
    ("show",): tables.show,
    ("demo",): demo.demo,
    ("atari", "train-agent"): train_agent.train_agent,
    ("atari", "learn"): learn.learn,
    ("atari", "show"): show_episode.show,
    ("atari", "sweep"): sweep.sweep,
    ("reproduce", "convergence"): reproduce.convergence,
    ("reproduce", "gridworld"): reproduce.gridworld,
    ("reproduce", "recipes"): reproduce.algorithms,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; `--help` raises SystemExit instead.

    0 is success, 1 a claim of the paper that fails its check, 2 bad input, 130 an interrupt.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has gone (`| head`); Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as stop:
        return _fail(describe_interrupt(stop, program_name(), given), 130)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    except (InputError, NotConverged, Diverged, ParseError) as error:
        return _fail(str(error))
    except MemoryError as error:
        return _fail(str(error) or "the memory is full; try a smaller world or --dtype float32.")


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"bisimetric {__version__}")
        return 0
    try:
        with capture_parse_errors(arguments, COMMANDS):
            job: Callable[[], int | None] = _build_application().cli(
                prog="bisimetric",
                description=DESCRIPTION,
                args=arguments,
                config=(tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone),
            )
    except SystemExit as stop:
        if not stop.code and {"-h", "--help"} & set(arguments):
            print(_format_examples(arguments))
        sys.stdout.flush()
        raise
    return job() or 0


def _fail(message: str, code: int = 2) -> int:
    print("bisimetric:", " ".join(message.split()), file=sys.stderr)
    return code


def _build_application() -> SubcommandApp:
    app, groups = SubcommandApp(), {name: SubcommandApp() for name in GROUP_HELP}
    for path, function in COMMANDS.items():
        home = groups.get(path[0], app)
        if path[0] in GROUP_HELP:
            app.command(home, name=path[0], help=GROUP_HELP[path[0]])
        home.command(name=path[-1])(_defer(function))
    return app


def _defer(function: Callable[..., int | None]) -> Callable[..., Any]:
    """The call that a command line asks for, not yet made: parsing never meets its errors."""

    @functools.wraps(function)
    def parsed(*args: Any, **options: Any) -> Callable[[], int | None]:
        return functools.partial(function, *args, **options)

    return parsed


def _format_examples(arguments: Sequence[str]) -> str:
    """The examples of the command, or of the group of commands, that help was asked for."""
    words = tuple(word for word in arguments if not word.startswith("-"))
    exactly = [path for path in COMMANDS if path == words[: len(path)]]
    below = [path for path in COMMANDS if path[: len(words[:1])] == words[:1]]
    lines: list[str] = []
    for path in exactly or below:
        section = (inspect.getdoc(COMMANDS[path]) or "").partition("Examples:\n")[2]
        found = textwrap.dedent(section).strip().splitlines()
        lines += found if exactly else found[:1]
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])
