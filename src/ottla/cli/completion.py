"""Print the completion script of a shell: for commands, verbs, options, and names of topics, groups and profiles.

The script calls `ottla` at each TAB. The names of topics, groups and connectors, and transactional ids, come from
the cluster or the worker, within a second.
"""

from __future__ import annotations

import re

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from ottla.cli.commands import Argument, Choice, Command, Options
from ottla.cli.connect import GivenSettings, open_admin
from ottla.cli.connectors_client import Api
from ottla.clients.errors import ClientError
from ottla.common.failure import Failure
from ottla.tools import profile_file

EXAMPLES = """
eval "$(ottla completion bash)"      in ~/.bashrc
source <(ottla completion zsh)       in ~/.zshrc, after compinit
ottla completion fish | source       in ~/.config/fish/config.fish
"""

VARIABLE = "_OTTLA_COMPLETE"
"""The environment variable in which the script of a shell names its instruction."""
_ONE_SECOND = GivenSettings(("default.api.timeout.ms=1000",), ("admin",))
_WORD = re.compile(r"[A-Za-z0-9._:@/-]+")
_SEPARATORS = re.compile(r"[:=]+")


class Bash(BashComplete):
    """Completion for bash, which splits words at `:` and `=` (COMP_WORDBREAKS)."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        joined: list[str] = []
        for word in words:
            is_separator = _SEPARATORS.fullmatch(word) is not None
            if joined and (is_separator or joined[-1].endswith((":", "="))):
                joined[-1] += word
            else:
                joined.append(word)
        return joined, incomplete


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": ZshComplete, "fish": FishComplete}


def run(options: Options) -> int:
    """Print the script of the shell."""
    root = click.get_current_context().find_root().command
    print(SHELLS[options.shell](root, {}, "ottla", VARIABLE).source(), end="")
    return 0


def complete(root: click.Command, instruction: str) -> int:
    """Print the completions for the script of a shell; `instruction` is the value of VARIABLE: `bash_complete`."""
    shell = SHELLS.get(instruction.partition("_")[0])
    if shell is None:
        return 1
    print(shell(root, {}, "ottla", VARIABLE).complete())
    return 0


def values(metavar: str, context: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """Return the completions for a metavar: names from the cluster or the profiles, files, or directories."""
    if metavar in ("FILE", "SEGMENT", "FILE|DIR"):
        return [CompletionItem(incomplete, type="file")]
    if metavar == "DIR":
        return [CompletionItem(incomplete, type="dir")]
    names: list[str] = []
    if metavar == "PROFILE":
        names = list(profile_file.load().get("profiles", {}))
    elif metavar == "CONNECTOR":
        names = _connectors(context)
    elif metavar.startswith(("TOPIC", "GROUP", "TRANSACTIONAL_ID")):
        names = _names(metavar, context)
    # Any client can choose the name of a group, and the shell expands special characters in completions.
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and _WORD.fullmatch(name)]


def _names(metavar: str, context: click.Context) -> list[str]:
    """Return the names of topics or groups, or transactional ids; an empty list if the cluster does not respond."""
    options = Options(**{**context.params, "client_settings": _ONE_SECOND})
    try:
        with open_admin(options) as admin:
            if metavar.startswith("GROUP"):
                return [group.group_id for group in admin.list_groups()]
            if metavar.startswith("TRANSACTIONAL_ID"):
                return [listed.transactional_id for listed in admin.list_transactions()]
            return [topic.name for topic in admin.list_topics()]
    except (Failure, ClientError):
        return []


def _connectors(context: click.Context) -> list[str]:
    """Return the names of connectors; an empty list if the worker does not respond within a second."""
    try:
        found = Api.of(Options(**context.params)).request("GET", "/connectors", timeout_s=1.0)
    except Failure:
        return []
    return [str(name) for name in found]


COMMAND = Command(
    run,
    [Argument("shell", "SHELL", type=Choice(tuple(SHELLS)), help="bash, zsh or fish")],
    __doc__,
    EXAMPLES,
)
