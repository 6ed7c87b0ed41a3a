"""Names of topics and groups on the command line: exact, with wildcards, or as regular expressions."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, AnyStr

import click

from ottla.cli.commands import Argument, Option, Options, usage_error
from ottla.cli.output import Output
from ottla.clients import admin as api
from ottla.clients.errors import ClientError
from ottla.common.failure import Failure, failing_on
from ottla.tools.suggestions import did_you_mean, nearest

_WILD = re.compile(r"[*?\[]")


def name_parameters(noun: str, *, optional: bool = False) -> list[click.Parameter]:
    """Return the parameters for the names that a verb works on. The option of Kafka's tools is accepted, too."""
    return [
        Argument(
            "names",
            noun.upper(),
            nargs=-1,
            help=f"{noun}s; * ? [abc] are wildcards (quote them){('; default: all' if optional else '')}",
        ),
        Option("--regex", "the names are regular expressions of whole names"),
        Option(f"--{noun} {noun.upper()}", name="more_names", multiple=True, hidden=True),
    ]


def if_exists_option(noun: str) -> Option:
    """Return the option `--if-exists`."""
    return Option("--if-exists", f"skip {noun}s that do not exist")


def names_of(options: Options, noun: str, *, optional: bool = False) -> list[str]:
    """Return the given names; raises a usage error if there are none and they are not `optional`."""
    names = [*options.names, *options.more_names]
    if not names and not optional:
        raise usage_error(f"which {noun}?")
    return names


def all_topics(admin: api.Admin) -> dict[str, api.TopicListing]:
    """Return all topics, also internal ones, by name."""
    return {topic.name: topic for topic in admin.list_topics(include_internal=True)}


def check_exists(name: str, known: Iterable[str], noun: str) -> None:
    """Raise Failure unless the name is one of `known`."""
    known = list(known)
    if name not in known:
        raise Failure(*missing(name, known, noun))


def choose(
    wanted: Sequence[str], known: Iterable[str], noun: str, *, regex: bool = False, missing_ok: bool = False
) -> list[str]:
    """Return the names of `known` that match, each once, or all if none is wanted.

    Raises Failure for a name without a match, unless `missing_ok`.
    """
    known = list(known)
    if not wanted:
        return known
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
    """Return the problem and the advice for a name that does not exist."""
    known = list(known)
    listing = f"`ottla {noun} list` shows the existing {noun}s."
    if not known:
        return (
            f"there is no {noun} {name!r}",
            f"No {noun} exists yet: `ottla {noun} --help` shows the verbs.",
        )
    if is_pattern:
        return f"no {noun} matches {name!r}", listing
    near = nearest(name, known)
    return f"there is no {noun} {name!r}", f"Did you mean {near!r}?" if near else listing


def is_pattern(name: str, *, regex: bool) -> bool:
    """Whether a name can match several."""
    return regex or _WILD.search(name) is not None


def confirm_deletion(question: str, *, yes: bool) -> None:
    """Ask a person at a terminal, unless `yes` is set. Raises Failure unless the answer is yes."""
    confirm(question, "nothing was deleted", "--yes deletes without asking.", yes=yes)


def confirm(question: str, refused: str, advice: str, *, yes: bool) -> None:
    """Ask a person at a terminal, unless `yes` is set. Raises Failure with `refused` unless the answer is yes."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Failure(refused, advice)


def report_deletions(output: Output, noun: str, names: Sequence[str], errors: Mapping[str, ClientError]) -> None:
    """Print the deleted names; raises PartialFailure if there are errors."""
    deleted = [name for name in names if name not in errors]
    for name in deleted:
        output.changed(f"{name}: deleted", {noun: name, "deleted": True})
    if errors:
        raise api.PartialFailure.of(errors, dict.fromkeys(deleted))


def enumerated(names: Sequence[str], most: int = 5) -> str:
    """Format as `a, b and 7 more`."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


def _matching(name: str, known: Iterable[str], *, regex: bool) -> list[str]:
    if regex:
        pattern = compiled(name, f"{name!r} is not a regular expression")
        return [each for each in known if pattern.fullmatch(each)]
    if not _WILD.search(name):
        return []
    return [each for each in known if fnmatchcase(each, name)]


def compiled(text: AnyStr, about: str) -> re.Pattern[AnyStr]:
    """Compile a regular expression. Raises Failure, which begins with `about`, if it is not one."""
    with failing_on(re.error, about=about), warnings.catch_warnings():
        # Python warns about '[[', which may mean something else in its later versions. The user cannot act on it.
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(text)


def existing_groups(
    admin: api.Admin, options: Options, *, optional: bool = False, missing_ok: bool = False
) -> list[str]:
    """Return the groups that the options name; all groups if they name none and `optional` is set."""
    wanted = names_of(options, "group", optional=optional)
    known = [group.group_id for group in admin.list_groups()]
    return choose(wanted, known, "group", regex=options.regex, missing_ok=missing_ok)


def check_broker(admin: api.Admin, node_id: str, also: str = "") -> None:
    """Raise Failure unless a broker has this id; `also` names what else the word may be."""
    brokers = [str(broker.node_id) for broker in admin.describe_cluster().brokers]
    if node_id not in brokers:
        raise Failure(f"there is no broker {node_id!r}", f"There are: {', '.join(brokers)}{also}.")


def members_of(kind: Any, words: Iterable[str], noun: str) -> list[Any]:
    """Return the members of an enum, such as the states of a `noun`, for words of the command line."""
    by_name = {member.value.lower(): member for member in kind if member.value != "Unknown"}
    chosen = []
    for word in words:
        for each in word.split(","):
            plain = each.strip().lower().replace("-", "").replace("_", "")
            if plain not in by_name:
                known = [member.value for member in by_name.values()]
                advice = did_you_mean(each, known, f"It may be {', '.join(known)}.")
                raise Failure(f"no {noun} is {each!r}", *advice, exit_code=2)
            chosen.append(by_name[plain])
    return chosen
