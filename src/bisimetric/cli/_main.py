"""The entry point: the table of commands, and the translation of errors and warnings to text."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import textwrap
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import tyro
from tyro.extras import SubcommandApp

from bisimetric import __version__
from bisimetric.cli.commands import (
    exact,
    learned,
    relation,
    reproduce,
    rollout,
    sampled,
    sharded,
    show,
)
from bisimetric.cli.commands.uses import aggregate, bonus, compress, embed, transfer
from bisimetric.cli.options import program_name
from bisimetric.cli.output import describe_interrupt
from bisimetric.cli.parsing import Commands, ParseError, capture_parse_errors, list_flags
from bisimetric.cli.plugins import PluginWarning, load_groups
from bisimetric.errors import (
    Diverged,
    ExpectedRewardWarning,
    HorizonWarning,
    InputError,
    MissingActionsWarning,
    NearTieWarning,
    NotConverged,
    StochasticDataWarning,
)

DESCRIPTION = """How similar is the behaviour of two states of a Markov decision process?

bisimetric measures it with bisimulation distances, which bound how much the values of two states
differ. Exact distances have a proven error; sampled and learned ones report what is proven.
`bisimetric --version` prints the version."""

GROUP_HELP = {
    "exact": "Distances between all states of an MDP, with a proven error.",
    "relation": "Classes of states with exactly the same behaviour.",
    "sharded": "Exact distances, computed and stored by several processes together.",
    "sampled": "Distances from sampled pairs of transitions of an MDP or a data set.",
    "learned": "Distances approximated by a network, for an MDP or a data set.",
    "uses": "Applications of a distance, with their bounds and their measured errors.",
    "reproduce": "Figures and experiments of the paper.",
}

COMMANDS: dict[tuple[str, ...], Callable[..., int | None]] = {
    ("worlds",): show.worlds,
    ("exact", "bisimulation"): exact.bisimulation,
    ("exact", "on-policy"): exact.on_policy,
    ("exact", "lax"): exact.lax,
    ("exact", "mico"): exact.mico,
    ("exact", "asynchronous"): exact.asynchronous,
    ("exact", "confidence-bounds"): exact.confidence_bounds,
    ("exact", "recorded"): exact.recorded,
    ("exact", "reduced-mico"): exact.reduced_mico,
    ("exact", "undiscounted"): exact.undiscounted,
    ("relation", "bisimulation"): relation.bisimulation,
    ("relation", "on-policy"): relation.on_policy,
    ("relation", "lax"): relation.lax,
    ("relation", "robust"): relation.robust,
    ("relation", "abstraction"): relation.abstraction,
    ("relation", "distinguish"): relation.distinguish,
    ("sharded", "bisimulation"): sharded.bisimulation,
    ("sharded", "on-policy"): sharded.on_policy,
    ("launch",): sharded.launch,
    ("sampled", "bisimulation"): sampled.bisimulation,
    ("sampled", "on-policy"): sampled.on_policy,
    ("learned", "bisimulation"): learned.bisimulation,
    ("learned", "on-policy"): learned.on_policy,
    ("learned", "mico"): learned.mico,
    ("learned", "reduced-mico"): learned.reduced_mico,
    ("uses", "aggregate"): aggregate.aggregate,
    ("uses", "bonus"): bonus.bonus,
    ("uses", "compress"): compress.compress,
    ("uses", "embed"): embed.embed,
    ("uses", "transfer"): transfer.transfer,
    ("rollout",): rollout.rollout,
    ("explain",): show.explain,
    ("show",): show.show,
    ("view",): show.view,
    ("playground",): show.playground,
    ("demo",): reproduce.demo,
    ("reproduce", "algorithms"): reproduce.algorithms,
    ("reproduce", "claims"): reproduce.claims,
    ("reproduce", "convergence"): reproduce.convergence,
    ("reproduce", "gridworld"): reproduce.gridworld,
    ("reproduce", "losses"): reproduce.losses,
}
"""The built-in commands, by their words."""
TEXT_ONLY = {("launch",), ("demo",)}
"""Commands without a report of their own, and so without --json."""

WARNINGS = (
    ExpectedRewardWarning,
    HorizonWarning,
    MissingActionsWarning,
    NearTieWarning,
    PluginWarning,
    StochasticDataWarning,
)
CONFIG = (
    tyro.conf.PositionalMetavarFromFieldName,
    tyro.conf.DisallowNone,
    tyro.conf.OmitArgPrefixes,
    tyro.conf.FlagCreatePairsOff,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        arguments: the words after the program's name; default: those of this process.

    Returns:
        The exit code: 0 for success, 1 if a claim of the paper fails its check, 2 for bad input,
        130 for an interrupt, 141 for a closed pipe.

    Raises:
        SystemExit: after `--help`.

    >>> main(["--version"])
    bisimetric ...
    0
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            for category in WARNINGS:
                warnings.simplefilter("always", category)
            warnings.showwarning = _show_warning
            code = _run(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader is gone (`| head`); Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as interrupt:
        return _fail(describe_interrupt(interrupt, program_name(), given), 130)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    except InputError as error:
        return _fail(_translate(error, given))
    except (NotConverged, Diverged, ParseError) as error:
        return _fail(str(error))
    except MemoryError as error:
        return _fail(str(error) or "the memory is full; try a smaller world or --dtype float32.")


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"bisimetric {__version__}")
        return 0
    return parse(arguments)() or 0


def parse(arguments: Sequence[str]) -> Callable[[], int | None]:
    """Return the call that a command line requests.

    Raises:
        ParseError: if it cannot be parsed.
        SystemExit: after `--help`.
    """
    commands, group_help = list_commands(arguments)
    try:
        with capture_parse_errors(arguments, commands):
            call: Callable[[], int | None] = _build_application(commands, group_help).cli(
                prog="bisimetric", description=DESCRIPTION, args=arguments, config=CONFIG
            )
    except SystemExit as stop:
        if not stop.code and {"-h", "--help"} & set(arguments):
            print(_format_examples(arguments, commands))
        sys.stdout.flush()
        raise
    return call


def list_commands(arguments: Sequence[str] = ()) -> tuple[Commands, dict[str, str]]:
    """Return the commands and the help of their groups, those of other distributions included.

    Those are loaded unless the command line starts with a built-in command.

    Raises:
        InputError: it starts with a group that is not installed or fails to load.
    """
    built_in = {path[0] for path in COMMANDS}
    if arguments and arguments[0] in built_in:
        return COMMANDS, GROUP_HELP
    groups = load_groups(arguments[:1], built_in)
    added: dict[tuple[str, ...], Callable[..., Any]] = {
        (name, command): function
        for name, group in groups.items()
        for command, function in group.commands.items()
    }
    return {**COMMANDS, **added}, {
        **GROUP_HELP,
        **{name: group.help for name, group in groups.items()},
    }


def _fail(message: str, code: int = 2) -> int:
    print("bisimetric:", " ".join(message.split()), file=sys.stderr)
    return code


def _show_warning(message: Warning | str, *_args: Any, **_options: Any) -> None:
    print("warning:", " ".join(str(message).split()), file=sys.stderr)


def _translate(error: InputError, arguments: Sequence[str]) -> str:
    """Return the message of an error with the flag in place of the Python argument."""
    try:
        commands, _ = list_commands(arguments)
    except InputError:
        return str(error)
    function = commands.get(tuple(arguments[:2])) or commands.get(tuple(arguments[:1]))
    name = error.argument or ""
    flags = {} if function is None else list_flags(function)
    flag = flags.get(name)
    return str(error) if flag is None else error.describe(None, flag, error.remedy)


def _build_application(commands: Commands, group_help: Mapping[str, str]) -> SubcommandApp:
    app, groups = SubcommandApp(), {name: SubcommandApp() for name in group_help}
    for path, function in commands.items():
        parent = groups.get(path[0], app)
        if path[0] in group_help:
            app.command(parent, name=path[0], help=group_help[path[0]])
        parent.command(name=path[-1])(_defer(function, json=path not in TEXT_ONLY))
    return app


JsonArg = Annotated[
    bool, tyro.conf.arg(help="print one JSON object in place of text", help_behavior_hint="")
]


def _defer(function: Callable[..., int | None], *, json: bool) -> Callable[..., Any]:
    """Return a function that parses like a command and returns its call: errors come later.

    Args:
        function: the command.
        json: whether it accepts --json.
    """

    def parse(*args: Any, json: bool = False, **options: Any) -> Callable[[], int | None]:
        return functools.partial(_call, functools.partial(function, *args, **options), json)

    hints = typing.get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    parameters = [*signature.parameters.values()]
    if json:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("json", kind, default=False, annotation=JsonArg))
        hints["json"] = JsonArg
    parse.__name__, parse.__doc__ = function.__name__, function.__doc__
    parse.__annotations__ = hints
    parse.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return parse


def _call(command: Callable[[], int | None], json: bool) -> int | None:
    if not json:
        return command()
    from bisimetric.cli.report import collect_json

    with collect_json():
        return command()


def _format_examples(arguments: Sequence[str], commands: Commands) -> str:
    """Return the examples of the command, or of the group of commands, that help is about."""
    words = tuple(word for word in arguments if not word.startswith("-"))
    exact_match = [path for path in commands if path == words[: len(path)]]
    in_group = [path for path in commands if path[: len(words[:1])] == words[:1]]
    lines: list[str] = []
    for path in exact_match or in_group:
        section = (inspect.getdoc(commands[path]) or "").partition("Examples:\n")[2]
        examples = textwrap.dedent(section).strip().splitlines()
        lines += examples if exact_match else examples[:1]
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])
