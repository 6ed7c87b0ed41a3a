"""Parsers as every command has them: examples at the end of --help, a mistyped word answered with the nearest one.

A command of several verbs (`ottla topic create`) is a module whose `add_arguments` calls `add_verbs` with one `Verb`
each, and whose `run` is `run_verb`.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, NoReturn

from ottla.cli.terminal import Style, terminal_columns

# What whoever knows Kafka's tools may try where it has another form.
_OF_KAFKAS_TOOLS = {
    "--topic": "a topic's name stands by itself",
    "--from-beginning": "`consume` begins there, `-o` says where else",
    "--max-messages": "it is -n",
    "--timeout-ms": "-e ends where the topic ends",
    "--producer-property": "it is -X NAME=VALUE",
    "--consumer-property": "it is -X NAME=VALUE",
    "--command-property": "it is -X NAME=VALUE",
}


class Verb(NamedTuple):
    """One verb of a command. `examples`: lines of `command   what it does`, shown below its options."""

    run: Callable[[argparse.Namespace], int]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    summary: str
    description: str = ""
    examples: str = ""
    names: tuple[str, ...] = ()  # other names that people try


class Formatter(argparse.HelpFormatter):
    """Fills paragraphs to the terminal's width; what follows a line that ends in a colon keeps its lines."""

    def __init__(self, prog: str) -> None:
        # Without a width, argparse would ask `shutil`, and each parser makes a formatter for each of its arguments.
        super().__init__(prog, max_help_position=28, width=terminal_columns() - 2)

    def _format_usage(self, usage, actions, groups, prefix):  # type: ignore[no-untyped-def]
        if usage is None:
            needed = [action for action in actions if not action.option_strings or action.required]
            options = " [OPTION ...]" if len(needed) < len(actions) else ""
            usage = " ".join([f"{self._prog}{options}", *map(_in_usage, needed)])
        return super()._format_usage(usage, actions, groups, prefix)

    def _format_action(self, action: argparse.Action) -> str:
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no other name for it
            # Without a line of its own for what they are together: the heading says that.
            return "".join(self._format_action(each) for each in self._iter_indented_subactions(action))
        return super()._format_action(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip().split("\n\n")
        return "\n\n".join(
            paragraph
            if paragraph.partition("\n")[0].endswith(":") or "\n " in f"\n{paragraph}"
            else super(Formatter, self)._fill_text(paragraph, width, indent)
            for paragraph in paragraphs
        )


def _in_usage(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    if action.option_strings:
        return f"{action.option_strings[-1]} {name}"
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ...", argparse.PARSER: f"{name} ..."}.get(
        str(action.nargs), name
    )


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes no shortened options and says what may have been meant."""

    def __init__(self, **settings: object) -> None:
        settings.setdefault("formatter_class", Formatter)
        settings.setdefault("allow_abbrev", False)
        super().__init__(**settings)  # type: ignore[arg-type]
        self._positionals.title = "arguments"
        self._intermixed = False
        self.verbs: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        """One line about what is wrong and one about where to look, exit code 2."""
        if self.verbs and message.endswith(": VERB"):
            message = f"which verb? There are {', '.join(self.verbs)}"
        style = Style.of(sys.stderr)
        self.exit(2, f"{style.red(f'{self.prog}: {message}')}\n       `{self.prog} --help` shows what it takes.\n")

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Names may stand before and after options; what nobody knows is an error of the parser nearest to it."""
        for word in args or ():
            if word.startswith("--") and word[2:] in self.verbs:
                self.error(f"it takes no {word!r}: a verb has no dashes, `{self.prog} {word[2:]}`")
        if self._intermixed or self._subparsers is not None or not self._get_positional_actions():
            namespace, unknown = super().parse_known_args(args, namespace)
            if self._intermixed:
                return namespace, unknown
        else:
            self._intermixed = True  # it calls this method again
            try:
                namespace, unknown = self.parse_known_intermixed_args(args, namespace)
            finally:
                self._intermixed = False
        if unknown:
            word = unknown[0]
            near = nearest(word.partition("=")[0], self._option_string_actions)
            meant = f"did you mean {near}?" if near else _OF_KAFKAS_TOOLS.get(word.partition("=")[0])
            self.error(f"it takes no {word!r}" + (f"; {meant}" if meant else ""))
        return namespace, unknown

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices and isinstance(value, str):
            is_verb = isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - argparse has no other name for it
            near = nearest(value, action.choices)
            if is_verb:
                text = f"there is no {value!r} here; "
                text += f"did you mean {near}?" if near else f"there are {', '.join(action.choices)}"
            else:
                text = f"{value!r} is none of {', '.join(map(str, action.choices))}"
                text += f"; did you mean {near}?" if near else ""
            raise argparse.ArgumentError(None if is_verb else action, text)
        super()._check_value(action, value)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that looks most like this one; None if none does."""
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    from difflib import get_close_matches  # a millisecond, for mistakes only

    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return by_lower[close[0]]
    inside = [name for name in known if len(word) > 2 and word.lower() in name.lower()]
    return inside[0] if len(inside) == 1 else None


def add_verbs(parser: argparse.ArgumentParser, verbs: Mapping[str, Verb]) -> None:
    """Give `parser` its verbs; the chosen one's function becomes `options.verb_run`."""
    rows = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True, parser_class=Parser)
    if isinstance(parser, Parser):
        parser.verbs = tuple(verbs)
    for name, verb in verbs.items():
        each = rows.add_parser(
            name,
            help=verb.summary,
            description=verb.description or f"{verb.summary[:1].upper()}{verb.summary[1:]}.",
            epilog=f"examples:\n{indented(verb.examples)}" if verb.examples else None,
            aliases=verb.names,
        )
        verb.add_arguments(each)
        each.set_defaults(verb_run=verb.run)


def run_verb(options: argparse.Namespace) -> int:
    """Run the chosen verb; returns its exit code."""
    return int(options.verb_run(options))


def indented(text: str) -> str:
    """The lines of `text`, two blanks in."""
    return "\n".join(f"  {line.strip()}" for line in text.strip().splitlines())
