"""Commands on top of click: examples below the help, options in sections, and suggestions for typing errors.

A command is a function that receives the values of its parameters as the attributes of one object and returns the exit
code. A command with verbs (`ottla topic create`) is a `Group`, whose decorator `verb` adds them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import click

from ottla.cli import late
from ottla.common.failure import Failure
from ottla.tools.suggestions import nearest

Options = SimpleNamespace
"""The values of a command's parameters, by name."""

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
_OPTIONS = "Options"
# Metavars of paths, which may be any bytes.
_PATHS = ("FILE", "FILE|DIR", "DIR")
# An option or setting that is at least this similar to an unknown option is probably meant.
_PROBABLE = 0.75


class Option(click.Option):
    """An option, written as in the help: `-p, --partitions N`. It is a flag if it has neither a value nor a type.

    `section` is the heading under which the help lists it, `name` the attribute of Options (default: the long name).
    The value of an option that `takes_bytes` may be any bytes (`os.fsencode` returns them), otherwise it is UTF-8 text.
    """

    section = _OPTIONS

    def __init__(
        self,
        usage: str,
        help: str = "",  # noqa: A002 - click's name
        *,
        name: str | None = None,
        takes_bytes: bool = False,
        settings: Callable[[], Iterable[str]] = tuple,
        **attributes: Any,
    ) -> None:
        """`settings()` are the names that an option of the form NAME=VALUE accepts: people type them as options."""
        self.settings = settings
        *short, last = usage.split(", ")
        long, _, metavar = last.partition(" ")
        self.takes_bytes = takes_bytes or metavar in _PATHS
        if not (metavar or "type" in attributes):
            attributes["is_flag"] = True
        super().__init__(
            [*([name] if name else []), *short, long],
            metavar=metavar or None,
            help=help,
            shell_complete=_completion(metavar, attributes),
            **attributes,
        )


def section(heading: str, *options: Option) -> tuple[Option, ...]:
    """List options below a heading of their own in the help."""
    for option in options:
        option.section = heading
    return options


class Argument(click.Argument):
    """An argument with a help text."""

    def __init__(self, name: str, metavar: str, help: str = "", **attributes: Any) -> None:  # noqa: A002 - click's name
        nargs, required = attributes.get("nargs", 1), attributes.get("required", attributes.get("nargs", 1) > 0)
        shown = (metavar if required else f"[{metavar}]") + ("..." if nargs != 1 else "")
        complete = _completion(metavar, attributes)
        super().__init__([name], metavar=shown, shell_complete=complete, **{"required": required, **attributes})
        self.help = help
        self.takes_bytes = metavar in _PATHS


Parameters = Sequence[click.Parameter]
Run = Callable[[Options], int | None]


def _completion(metavar: str, attributes: dict[str, Any]) -> Any:
    """Return the completion of a parameter: by its metavar, unless its type has one."""
    given = attributes.pop("shell_complete", None)
    if given is not None or not metavar or isinstance(attributes.get("type"), click.ParamType):
        return given

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
        del parameter
        return late.completion.values(metavar, context, incomplete)

    return complete


class Choice(click.Choice[str]):
    """One word of a list; the error suggests the nearest one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        del ctx
        near = nearest(str(value), self.choices)
        text = f"{value!r} is not one of {', '.join(self.choices)}"
        return f"{text}; did you mean {near}?" if near else text


def _check_text(parameters: Iterable[click.Parameter], context: click.Context) -> None:
    """Raise a usage error for an argument that is not UTF-8: Python represents its bytes as lone surrogates."""
    for parameter in parameters:
        if getattr(parameter, "takes_bytes", False):
            continue
        value = context.params.get(parameter.name or "")
        for word in value if isinstance(value, tuple) else (value,):
            if isinstance(word, str) and not is_text(word):
                name = parameter.opts[-1] if isinstance(parameter, Option) else (parameter.metavar or "").strip("[].")
                raise click.UsageError(f"{name} {repr(os.fsencode(word))[1:]} is not valid UTF-8", context)


def is_text(argument: str) -> bool:
    """Whether an argument is UTF-8; Python represents other bytes as lone surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hint(option: str, parameters: Sequence[click.Parameter]) -> str:
    """Return the end of the error about an unknown option: its name here, a similar option, or a setting."""
    own = [name for parameter in parameters for name in parameter.opts if isinstance(parameter, click.Option)]
    arguments = [(parameter.metavar or "").strip("[].") for parameter in parameters if isinstance(parameter, Argument)]
    if text := late.foreign_words.of_option(option, [*own, *arguments]):
        return f": {text}"
    settings = {
        f"--{name.replace('.', '-')}": f"{parameter.opts[-1]} {name}=VALUE"
        for parameter in parameters
        if isinstance(parameter, Option)
        for name in parameter.settings()
    }
    known = [name for name in own if name.startswith("--")]
    near = nearest(option, known, _PROBABLE) or nearest(option.replace(".", "-"), settings, _PROBABLE)
    near = near or nearest(option, known)
    if near is None:
        return ""
    return f"; did you mean {settings.get(near, near)}?"


class _Page(click.Command):
    """The layout of help pages and the errors for unknown options, for commands and groups."""

    examples = ""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = "show this help"
        return option

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        for heading, rows in self.sections(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=26)
        if self.examples:
            formatter.write("\nexamples:\n")
            formatter.write("".join(f"  {line.strip()}\n" for line in self.examples.strip().splitlines()))

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the headings of the help page, each with its rows."""
        return self.options_by_section(ctx)

    def options_by_section(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the parameters below each heading with their help texts; arguments and plain options come first."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, Argument):
                sections.setdefault("Arguments", []).append((parameter.metavar or "", parameter.help or ""))
            elif row := parameter.get_help_record(ctx):
                sections.setdefault(getattr(parameter, "section", _OPTIONS), []).append(row)
        options = sections.pop(_OPTIONS, [])
        arguments = sections.pop("Arguments", [])
        first = {"Arguments": arguments, _OPTIONS: options}
        return {heading: rows for heading, rows in (first | sections).items() if rows}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = _hint(error.option_name, self.get_params(ctx))
            raise click.UsageError(f"unknown option {error.option_name}{hint}", ctx) from None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click's parser does not set it, and the message names the command
            raise
        _check_text(self.get_params(ctx), ctx)
        return rest


class Command(_Page):
    """One command: `run` gets the options and returns the exit code, None for 0."""

    def __init__(
        self,
        run: Run,
        parameters: Parameters,
        description: str | None,
        examples: str = "",
        summary: str | None = None,
        aliases: tuple[str, ...] = (),
    ) -> None:
        """`aliases` are other names that people try."""
        super().__init__(
            None,
            params=list(parameters),
            callback=lambda **values: run(Options(**values)) or 0,
            help=description,
            short_help=summary,
            context_settings=CONTEXT_SETTINGS,
        )
        self.examples = examples
        self.aliases = aliases


class Group(click.Group, _Page):
    """A command with verbs."""

    def __init__(
        self,
        description: str | None,
        examples: str,
        parameters: Parameters = (),
        *,
        shared: Parameters = (),
        metavar: str = "VERB",
    ) -> None:
        """`parameters` belong to the group itself, `shared` to each of its verbs."""
        super().__init__(
            None,
            params=list(parameters),
            help=description,
            no_args_is_help=False,
            context_settings=CONTEXT_SETTINGS,
            subcommand_metavar=f"{metavar} ...",
            options_metavar="",
        )
        self.examples = examples
        self._shared = shared
        self._aliases: dict[str, Command] = {}

    def verb(
        self,
        name: str,
        *parameters: click.Parameter,
        examples: str,
        summary: str | None = None,
        aliases: tuple[str, ...] = (),
    ) -> Callable[[Run], Run]:
        """Add the decorated function as a verb. Its docstring is the help, and its first sentence the summary."""

        def add(run: Run) -> Run:
            description = inspect.cleandoc(run.__doc__ or "")
            first = description.partition(".")[0].replace("\n", " ")
            short = summary or first[:1].lower() + first[1:]
            verb = Command(run, [*parameters, *self._shared], description, examples, short, aliases)
            self.commands[name] = verb
            self._aliases.update(dict.fromkeys(aliases, verb))
            return run

        return add

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        return self.commands.get(cmd_name) or self._aliases.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names and self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            near = late.foreign_words.COMMANDS.get(f"{ctx.command_path} {args[0]}") or nearest(args[0], names)
            raise click.UsageError(
                f"unknown command {args[0]!r}; "
                + (f"did you mean {near}?" if near else f"there are {', '.join(names)}"),
                ctx,
            )
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = self.list_commands(ctx)
        if not args and not ctx.resilient_parsing:
            raise click.UsageError(f"which verb? There are {', '.join(names)}", ctx)
        first = args[0] if args else ""
        if first.startswith("--") and first[2:] in names and not any(first in each.opts for each in self.params):
            raise click.UsageError(
                f"unknown option {first}: a verb has no dashes, `{ctx.command_path} {first[2:]}`", ctx
            )
        return super().parse_args(ctx, args)

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        verbs = [(name, verb.get_short_help_str(200)) for name, verb in self.commands.items()]
        return {"Verbs": verbs, **self.options_by_section(ctx)}


class DefaultGroup(Group):
    """A command with verbs that runs one of them if it gets options only."""

    default = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Completion of the first word offers the verbs.
        is_complete = bool(args) or not ctx.resilient_parsing
        if is_complete and (not args or (args[0].startswith("-") and args[0] not in ("-h", "--help"))):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def dry_run_option() -> Option:
    """Return the option `--dry-run` of verbs whose requests the broker can check without a change."""
    return Option("--dry-run", "let the broker check the request without a change")


def yes_option() -> Option:
    """Return the option `--yes` of verbs that ask a person at a terminal."""
    return Option("-y, --yes", "do not ask")


def quiet_option(names: str = "names") -> Option:
    """Return the option `--quiet` of verbs that list `names`."""
    return Option("-q, --quiet", f"only {names}, one per line")


def require_one(options: Options, *names: str) -> None:
    """Raise a usage error unless exactly one of the options `names` was given."""
    given = [
        name for name, value in _values_of(options, names).items() if value is not None and value is not False
    ]  # 0 is a value
    if len(given) != 1:
        problem = f"{given[0]} and {given[1]} exclude each other" if given else f"one of {', '.join(names)} is required"
        raise usage_error(problem)


def require_positive(options: Options, *names: str) -> None:
    """Raise Failure if one of these options was given, but is less than 1."""
    for name, value in _values_of(options, names).items():
        if value is not None and value < 1:
            raise Failure(f"{name} is {value}; it must be at least 1", exit_code=2)


def _values_of(options: Options, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(options, name[2:].replace("-", "_")) for name in names}


def usage_error(problem: str) -> click.UsageError:
    """Return an error for wrong arguments of the running command."""
    return click.UsageError(problem, click.get_current_context())
