"""The declaration of commands: options by their help rows, verbs by their docstrings, and tables of their results."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import click
import pytest

from ottla.cli.commands import Argument, Choice, Group, Option, Options, require_one, section
from ottla.cli.main import main
from ottla.cli.names import choose
from ottla.cli.output import Column, Output, number
from ottla.common.failure import Failure


def parsed(option: Option, *words: str) -> Any:
    """Return the value of the option after these words."""
    command = click.Command("test", params=[option])
    (value,) = command.make_context("test", list(words)).params.values()
    return value


@pytest.mark.parametrize(
    ("option", "words", "value"),
    [
        (Option("--long"), ["--long"], True),
        (Option("--long"), [], False),
        (Option("-l, --long"), ["-l"], True),
        (Option("-p, --partitions N", type=int), ["-p", "6"], 6),
        (Option("-p, --partitions N", type=int), ["--partitions=6"], 6),
        (Option("-p, --partitions N", type=int), [], None),
        (Option("--shift-by N", type=int), ["--shift-by", "-50"], -50),
        (Option("-c, --config NAME=VALUE", multiple=True), ["-c", "a=1", "--config", "b=2"], ("a=1", "b=2")),
        (Option("-b, --bootstrap-server HOST:PORT,.."), ["-b", "a:1,b:2"], "a:1,b:2"),
        (Option("--acks", type=Choice(("0", "1", "all"))), ["--acks", "all"], "all"),
        (Option("-n, --last N", type=int, default=10), [], 10),
    ],
)
def test_option_is_declared_as_the_help_shows_it(option: Option, words: list[str], value: object) -> None:
    assert parsed(option, *words) == value


def test_help_row_is_the_declaration() -> None:
    context = click.Context(click.Command("test"))
    assert Option("-p, --partitions N", "how many").get_help_record(context) == ("-p, --partitions N", "how many")
    assert Option("-X NAME=VALUE", "a setting", name="given", multiple=True).name == "given"
    assert Option("--to, --partitions N", name="to", type=int).name == "to"
    assert Option("--dry-run", hidden=True).get_help_record(context) is None


GROUP = Group("Things.", "ottla thing list", shared=[Option("--json", "JSON")])
CALLS: list[Options] = []


@GROUP.verb("list", Argument("names", "THING", nargs=-1), examples="ottla thing list", aliases=("ls",))
def _list(options: Options) -> None:
    """List things. Without a name
    it lists all.
    """
    CALLS.append(options)


@GROUP.verb("check", *section("Limits", Option("--most N", "a limit", type=int)), examples="", summary="check them")
def _check(options: Options) -> int:
    """Check the things."""
    return 1 if options.most else 0


def run(*words: str) -> object:
    with GROUP.make_context("ottla thing", list(words)) as context:
        return GROUP.invoke(context)


def test_verb_takes_its_help_from_the_docstring() -> None:
    context = click.Context(GROUP, info_name="ottla thing")
    verb = GROUP.get_command(context, "list")
    assert verb is not None
    assert (verb.help, verb.short_help) == ("List things. Without a name\nit lists all.", "list things")
    assert GROUP.get_command(context, "ls") is verb
    assert GROUP.list_commands(context) == ["list", "check"]
    check = GROUP.get_command(context, "check")
    assert check is not None
    assert check.short_help == "check them"
    page = check.get_help(click.Context(check, info_name="check"))
    assert "Limits:\n  --most N  a limit" in page
    assert "--json" in page, "an option that all verbs share"
    assert "show this help" in page


def test_verb_without_a_result_succeeds() -> None:
    CALLS.clear()
    assert run("ls", "a", "b", "--json") == 0
    (options,) = CALLS
    assert (options.names, options.json) == (("a", "b"), True)
    assert (run("check"), run("check", "--most", "3")) == (0, 1)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["chekc"], "unknown command 'chekc'; did you mean check?"),
        (["xyz"], "unknown command 'xyz'; there are list, check"),
        ([], "which verb? There are list, check"),
        (["--list"], "unknown option --list: a verb has no dashes, `ottla thing list`"),
        (["check", "--msot", "3"], "unknown option --msot; did you mean --most?"),
        (["list", "--from-beginning"], "unknown option --from-beginning: `consume` starts at the beginning"),
    ],
)
def test_mistyped_word_is_an_error_with_the_nearest_one(words: list[str], problem: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        run(*words)
    assert caught.value.format_message().startswith(problem)


def test_exactly_one_option_of_several_is_required() -> None:
    with click.Context(click.Command("test")):
        require_one(Options(by=0, to=None), "--by", "--to")
        for options in (Options(by=None, to=None), Options(by=1, to=2)):
            with pytest.raises(click.UsageError):
                require_one(options, "--by", "--to")


ROWS = [{"name": "a\x1b[2J", "lag": 0, "rack": None}, {"name": "b", "lag": 1200, "rack": None}]
COLUMNS = [Column("name"), number("lag"), Column("rack", optional=True)]


def listed(rows: list[dict[str, Any]], **options: bool) -> str:
    stream = io.StringIO()
    Output(Options(**options), stream).listing("name", COLUMNS, rows, empty="There is nothing.")
    return stream.getvalue()


def test_listing_is_a_table_names_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(ROWS) == "NAME        LAG\na\\x1b[2J      0\nb         1,200\n"
    assert listed(ROWS, quiet=True) == "a\x1b[2J\nb\n", "unchanged for scripts"
    assert listed(ROWS, quiet=True, json=True).splitlines()[1] == '{"name":"b","lag":1200,"rack":null}'
    assert (listed([]), capsys.readouterr().err) == ("", "There is nothing.\n")
    assert (listed([], quiet=True), listed([], json=True), capsys.readouterr().err) == ("", "", "")


def test_optional_column_is_omitted_if_no_row_has_a_value() -> None:
    assert "RACK" not in listed(ROWS)
    assert "RACK" in listed([*ROWS, {"name": "c", "lag": 0, "rack": "r1"}])


def test_parts_are_separated_by_empty_lines() -> None:
    stream = io.StringIO()
    output = Output(Options(), stream)
    for text in output.parts(["one", "two"]):
        output.line(text)
    assert stream.getvalue() == "one\n\ntwo\n"


@pytest.mark.parametrize(
    ("wanted", "regex", "chosen"),
    [
        ([], False, ["logs-a", "logs-b", "orders"]),
        (["orders", "orders"], False, ["orders"]),
        (["logs-*"], False, ["logs-a", "logs-b"]),
        (["logs-[b]", "logs-*"], False, ["logs-b", "logs-a"]),
        (["logs-."], True, ["logs-a", "logs-b"]),
    ],
)
def test_names_are_chosen_in_the_order_of_the_words(wanted: list[str], regex: bool, chosen: list[str]) -> None:
    assert choose(wanted, ["logs-a", "logs-b", "orders"], "topic", regex=regex) == chosen


def test_name_without_a_match_is_an_error_unless_it_may_be_missing() -> None:
    with pytest.raises(Failure, match="there is no topic 'ordes'") as caught:
        choose(["ordes"], ["orders"], "topic")
    assert caught.value.advice == ("Did you mean 'orders'?",)
    assert choose(["ordes"], ["orders"], "topic", missing_ok=True) == []
    with pytest.raises(Failure, match="is not a regular expression"):
        choose(["("], ["orders"], "topic", regex=True)


def test_command_imports_no_client_before_it_needs_one() -> None:
    program = (
        "import sys; from ottla.cli import topic\n"
        "before = 'ottla.clients.network' in sys.modules\n"
        "print(before, topic.api.Admin.__name__, 'ottla.clients.network' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "False Admin True"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["topic", "create", "a\udcff"], r"ottla topic create: TOPIC 'a\xff' is not valid UTF-8"),
        (["group", "lag", "--group", "\udcff"], r"ottla group lag: --group '\xff' is not valid UTF-8"),
        (["consume", "x", "-o", "\udcc3"], r"ottla consume: --offset '\xc3' is not valid UTF-8"),
    ],
)
def test_argument_that_is_not_utf_8_is_named_with_its_bytes(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.splitlines()[0] == problem


def test_paths_and_parts_of_records_may_be_any_bytes() -> None:
    assert parsed(Option("--file FILE"), "--file", "\udcff") == "\udcff"
    assert parsed(Option("-k, --key KEY", takes_bytes=True), "-k", "\udcff") == "\udcff"
