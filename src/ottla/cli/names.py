"""Names of topics and groups as people give them: exact, with wildcards, or as regular expressions."""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from ottla.cli.commands import Argument, Option, Options, usage_error
from ottla.cli.suggestions import nearest
from ottla.cli.terminal import Failure

if TYPE_CHECKING:
    from ottla.clients.admin import Admin

_WILD = re.compile(r"[*?\[]")


def name_parameters(noun: str, *, optional: bool = False) -> list[click.Parameter]:
    """The names that a verb is about; Kafka's tools have them as an option, which is understood too."""
    return [
        Argument(
            "names",
            noun.upper(),
            nargs=-1,
            help=f"{noun}s; * ? [abc] are wildcards (quote them){('; default: all' if optional else '')}",
        ),
        Option("--regex", is_flag=True, help="the names are regular expressions of whole names"),
        Option(f"--{noun}", "more_names", multiple=True, hidden=True),
    ]


def names_of(options: Options, noun: str, *, optional: bool = False) -> list[str]:
    """The names as they were given; raises Failure where there are none and must be some."""
    names = [*options.names, *options.more_names]
    if not names and not optional:
        raise usage_error(f"which {noun}?")
    return names


def choose(
    wanted: Sequence[str], known: Iterable[str], noun: str, *, regex: bool = False, missing_ok: bool = False
) -> list[str]:
    """Those of `known` that are meant, each once; raises Failure for a name that is not there."""
    known = list(known)
    chosen: dict[str, None] = {}
    for name in wanted:
        if not regex and name in known:
            chosen[name] = None
            continue
        found = _matching(name, known, regex=regex)
        if not found and not missing_ok:
            raise Failure(*missing(name, known, noun, is_pattern=regex or bool(_WILD.search(name))))
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def missing(name: str, known: Iterable[str], noun: str, *, is_pattern: bool = False) -> tuple[str, str]:
    """The problem and the advice for a name that is not there."""
    known = list(known)
    listing = f"`ottla {noun} list` shows the {noun}s that there are."
    if not known:
        return (
            f"there is no {noun} {name!r}",
            f"There is none at all yet: `ottla {noun} --help` shows what can be done.",
        )
    if is_pattern:
        return f"no {noun} matches {name!r}", listing
    near = nearest(name, known)
    return f"there is no {noun} {name!r}", f"Did you mean {near!r}?" if near else listing


def is_pattern(name: str, *, regex: bool) -> bool:
    """Whether a name may stand for several."""
    return regex or _WILD.search(name) is not None


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether to go on: asks only where a person sits at a terminal and has not said yes already."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def enumerated(names: Sequence[str], most: int = 5) -> str:
    """`a, b and 7 more`."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


def _matching(name: str, known: Iterable[str], *, regex: bool) -> list[str]:
    if regex:
        try:
            pattern = re.compile(name)
        except re.error as error:
            raise Failure(f"{name!r} is not a regular expression: {error}", exit_code=2) from error
        return [each for each in known if pattern.fullmatch(each)]
    if not _WILD.search(name):
        return []
    from fnmatch import fnmatchcase

    return [each for each in known if fnmatchcase(each, name)]


def existing_groups(admin: "Admin", options: Options, *, optional: bool = False, missing_ok: bool = False) -> list[str]:
    """The groups that are meant; all if none is named and `optional`."""
    wanted = names_of(options, "group", optional=optional)
    known = [group.group_id for group in admin.list_groups()]
    return choose(wanted, known, "group", regex=options.regex, missing_ok=missing_ok) if wanted else known
