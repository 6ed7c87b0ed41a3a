"""The frame of all commands: output for people and programs, pipes, terminals, profiles, completion, start time."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.cli.commands import Options
from ottla.cli.connect import connection_settings
from ottla.cli.output import Column, Output, number, one_line, size
from ottla.cli.root import SUMMARIES
from ottla.common import units
from ottla.common.failure import Failure
from ottla.tools import values
from tests import deadlines
from tests.clients.support import unique
from tests.conftest import RunningBroker

from .commands import all_commands, help_page, options_of
from .conftest import Run

OTTLA = [sys.executable, "-m", "ottla.cli.main"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def table(stream: io.StringIO, *, as_json: bool = False) -> str:
    rows = [
        {"name": "a", "records": 1_234_567, "size": 5_000_000, "more": [1, 2]},
        {"name": "much-longer", "records": None, "size": 12, "more": []},
    ]
    output = Output(Options(json=as_json), stream)
    output.table([Column("name", narrow=True), number("records"), size("size")], rows)
    return stream.getvalue()


# -- output ------------------------------------------------------------------------------------------------------


def test_table_is_aligned() -> None:
    assert table(io.StringIO()).splitlines() == [
        "NAME           RECORDS     SIZE",
        "a            1,234,567  4.8 MiB",
        "much-longer          -     12 B",
    ]


def test_json_output_has_an_object_per_line_with_raw_numbers() -> None:
    rows = [json.loads(line) for line in table(io.StringIO(), as_json=True).splitlines()]
    assert rows[0] == {"name": "a", "records": 1_234_567, "size": 5_000_000, "more": [1, 2]}


def test_only_terminals_without_no_color_are_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in table(Terminal())
    assert "\x1b[" not in table(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in table(Terminal())


def test_narrow_terminal_shortens_narrow_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "30")
    lines = table(Terminal()).splitlines()
    assert max(map(len, lines)) == 30
    assert lines[2].startswith("much-…nger  ")


def test_control_characters_in_names_are_escaped() -> None:
    assert one_line("a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc"
    assert one_line("žluťoučký 東京") == "žluťoučký 東京"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (units.size(0), "0 B"),
        (units.size(1023), "1023 B"),
        (units.size(1024 * 1024 - 1), "1.0 MiB"),
        (units.size(-1), "-"),
        (units.duration(250), "250 ms"),
        (units.duration(90_000), "1 min 30 s"),
        (units.duration(604_800_000), "7 d"),
        (units.duration(5_400_000), "1 h 30 min"),
        (units.plural(1, "topic"), "1 topic"),
        (units.plural(2000, "topic"), "2,000 topics"),
        (units.moment(-1), "-"),
        (units.moment(10**20), "100000000000000000000 ms"),
    ],
)
def test_numbers_are_formatted_for_people(text: str, shown: str) -> None:
    assert text == shown


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90s", 90_000), ("1h30min", 5_400_000), ("7d", 604_800_000), ("PT1H30M", 5_400_000), ("P1D", 86_400_000)],
)
def test_durations_are_parsed(text: str, milliseconds: int) -> None:
    assert units.parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "5", "1 fortnight", "h", "5s x", "-5s"])
def test_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("retention.ms=7d", "604800000"),
        ("retention.ms=-1", "-1"),
        ("max.message.bytes=4MiB", "4194304"),
        ("segment.bytes=1g", "1073741824"),
        ("cleanup.policy=1g", "1g"),
        ("retention.ms=soon", "soon"),
        ("x=a=b", "a=b"),
        ("x=", ""),
    ],
)
def test_settings_that_are_times_or_sizes_accept_units(word: str, value: str) -> None:
    assert list(values.assignments([word]).values()) == [value]


@pytest.mark.parametrize(
    ("word", "units"), [("retention.ms=12x", "ms, s, min"), ("segment.bytes=1q", "KiB, MiB"), ("a.ms=1KiB", "ms, s")]
)
def test_unknown_unit_is_an_error_with_the_known_units(word: str, units: str) -> None:
    with pytest.raises(Failure, match="is not a unit") as caught:
        values.assignments([word])
    assert units in caught.value.advice[0]
    assert caught.value.exit_code == 2


# -- the choice of the cluster -----------------------------------------------------------------------------------


def settings(*words: str, kind: str = "admin") -> dict[str, object]:
    found = connection_settings(options_of("topic", "list", *words), kind)
    found.pop("client.id", None)
    return found


def test_sources_of_the_address_override_each_other_in_order(
    monkeypatch: pytest.MonkeyPatch, plain: Run, tmp_path: Path
) -> None:
    assert settings() == {"bootstrap.servers": "127.0.0.1:9092"}
    assert plain("profile", "set", "one", "bootstrap.servers=one:1", "acks=1").code == 0
    assert plain("profile", "set", "two", "bootstrap.servers=two:2").code == 0
    assert plain("profile", "use", "one").code == 0
    assert settings() == {"bootstrap.servers": "one:1"}
    assert settings(kind="producer") == {"bootstrap.servers": "one:1", "acks": "1"}
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "environment:3")
    assert settings() == {"bootstrap.servers": "environment:3"}
    monkeypatch.setenv("OTTLA_PROFILE", "two")
    assert settings() == {"bootstrap.servers": "two:2"}
    assert settings("--profile", "one") == {"bootstrap.servers": "one:1"}
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:4\nrequest.timeout.ms=5\n")
    assert settings("--command-config", str(file)) == {"bootstrap.servers": "file:4", "request.timeout.ms": "5"}
    assert settings("-b", "option:5", "--command-config", str(file))["bootstrap.servers"] == "option:5"
    assert settings("-b", "option:5", "-X", "bootstrap_servers=x:6") == {"bootstrap.servers": "x:6"}


def test_profiles_hide_secrets_and_preserve_comments(
    plain: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter2\n"))
    assert plain("profile", "set", "prod", "bootstrap.servers=a:1,b:2", "sasl.password=-").code == 0
    file = tmp_path / "config" / "ottla" / "config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "hunter2" in file.read_text()
    shown = plain("profile", "show", "prod")
    assert "(hidden)" in shown.out
    assert "hunter2" not in shown.out + plain("profile", "show", "prod", "--json").out

    file.write_text("# mine\n" + file.read_text() + "\n# elsewhere\n[other]\nx = 1\n")
    assert plain("profile", "use", "prod").code == 0
    assert plain("profile", "set", 'it\'s "odd"', "bootstrap.servers=c:3").code == 0
    text = file.read_text()
    assert "# mine" in text
    assert "# elsewhere\n[other]\nx = 1" in text
    rows = plain("profile", "list", "--json").objects
    assert [(row["profile"], row["in_use"]) for row in rows] == [("prod", True), ('it\'s "odd"', False)]
    assert plain("profile", "delete", "prod").code == 0
    assert [row["in_use"] for row in plain("profile", "list", "--json").objects] == [False]


def test_invalid_profile_is_an_error_in_one_line(plain: Run, tmp_path: Path) -> None:
    assert "Did you mean client.id?" in plain("profile", "set", "x", "cleint.id=1").err
    assert "must be a whole number" in plain("profile", "set", "x", "request.timeout.ms=soon").err
    assert plain("profile", "use", "missing").code == 2
    assert plain("profile", "show").code == 2
    file = tmp_path / "config" / "ottla" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    for text in ("current = ", "profiles = 3\n", '[profiles]\nx = "y"\n'):
        file.write_text(text)
        answer = plain("topic", "list")
        assert answer.code == 2
        assert str(file) in answer.err


def test_profile_written_by_hand_can_be_changed(plain: Run, tmp_path: Path) -> None:
    file = tmp_path / "config" / "ottla" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('current="hand"\n[profiles.hand]\nbootstrap.servers = ["a:1", "b:2"]\nrequest_timeout_ms = 5\n')
    assert settings() == {"bootstrap.servers": "a:1,b:2", "request.timeout.ms": 5}
    assert plain("profile", "set", "hand", "client.id=me").code == 0
    assert settings()["bootstrap.servers"] == "a:1,b:2"
    file.write_text('current="hand"\nprofiles = { hand = { "bootstrap.servers" = "c:3" } }\n')
    assert plain("profile", "set", "hand", "client.id=me").code == 0
    assert settings() == {"bootstrap.servers": "c:3"}


# -- pipes and terminals -----------------------------------------------------------------------------------------


def test_closed_pipe_ends_the_command_without_an_error_message(broker: RunningBroker) -> None:
    command = f"{' '.join(OTTLA)} config list broker 1 --all -b {broker.bootstrap} | head -1; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout.startswith("SETTING")
    assert ended.stdout.splitlines()[-1] in ("0", "141")
    assert ended.stderr == ""


@pytest.mark.parametrize("words", ["config list broker 1 --all", "consume {topic} -e", "--help"])
def test_full_disk_is_an_error_in_one_line(words: str, broker: RunningBroker, topic: str) -> None:
    command = f"{shlex.join(OTTLA)} {words.format(topic=topic)} > /dev/full"
    environment = {**os.environ, "OTTLA_BOOTSTRAP": broker.bootstrap, "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=30, env=environment, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "ottla: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(closed: str, ottla: Run, broker: RunningBroker) -> None:
    topic = unique("closed")
    command = f"{shlex.join(OTTLA)} topic create {topic} -b {broker.bootstrap} {closed}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert topic in ottla("topic", "list", "--quiet").out.split()


def on_a_terminal(words: list[str], typed: str, until: str) -> tuple[int, str]:
    """Run a command on a pseudo terminal and type when `until` is shown; returns the exit code and the output."""
    child, master = pty.fork()
    if child == 0:
        os.execv(sys.executable, [*OTTLA, *words])
    shown, sent, deadline = "", False, time.monotonic() + 20
    try:
        while time.monotonic() < deadline:
            if not select.select([master], [], [], 0.5)[0]:
                continue
            try:
                data = os.read(master, 4096)
            except OSError:
                break  # Linux reports the end of a terminal as an error
            if not data:
                break
            shown += data.decode()
            if not sent and until in shown:
                os.write(master, typed.encode())
                sent = True
        else:
            os.kill(child, signal.SIGKILL)
        return deadlines.exit_code(child), shown
    finally:
        os.close(master)


def test_produce_at_a_terminal_explains_how_to_end(
    broker: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    code, shown = on_a_terminal(["produce", topic], "hello\n\x04", "Ctrl-D ends")
    assert (code, "1 record acknowledged" in shown) == (0, True), shown
    code, shown = on_a_terminal(["produce", topic], "hello\n\x03", "Ctrl-D ends")
    assert code == 130
    assert re.search(r"\^C\r\n.*[01] records? acknowledged", shown), shown


def test_delete_at_a_terminal_asks_for_confirmation(
    broker: RunningBroker, ottla: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, shown = on_a_terminal(["topic", "delete", topic], "n\n", "[y/N]")
    assert code == 1
    assert f"Delete 1 topic with all records: {topic}?" in shown
    assert "nothing was deleted" in shown
    assert ottla("topic", "list", topic, "--quiet").out == f"{topic}\n"
    code, shown = on_a_terminal(["topic", "delete", topic], "y\n", "[y/N]")
    assert code == 0
    assert f"{topic}: deleted" in shown


def test_ctrl_c_ends_watch(broker: RunningBroker, ottla: Run, group: str) -> None:
    code, shown = on_a_terminal(["group", "lag", group, "--watch", "--interval", "0.2"], "\x03", "lag 45")
    assert code == 130
    assert "Traceback" not in shown


# -- help and completion -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in SUMMARIES if name != "version"])
def test_each_help_page_has_valid_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path, command in all_commands():
        if path.split()[0] != name:
            continue
        text = help_page(path, command)
        assert "examples:" in text, path
        assert [line for line in text.splitlines() if len(line) > 80] == [], path
        for line in text.partition("examples:\n")[2].splitlines():
            words = re.match(r"  ottla ([^|<>]*?)(?:  .*| [|<>].*)?$", line)
            if words and "$(" not in line:
                options_of(*shlex.split(words[1]))


def test_help_imports_only_what_it_shows() -> None:
    code = (
        "import sys, contextlib, io\nfrom ottla.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): main(['--help'])\n"
        "print([m for m in sys.modules if m in ('asyncio', 'json', 'rich', 'ottla.clients', 'ottla.config')])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert answer.stdout.strip() == "[]"


COMPLETE = """
source <(printf '%s' "$SCRIPT")
complete_line() {
    COMP_LINE=$1 COMP_POINT=${#1}
    read -ra COMP_WORDS <<<"$1"
    [[ $1 == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _ottla_completion ottla
    printf '%s ' "${COMPREPLY[@]}"
}
complete_line "$LINE"
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ottla to", ["topic", "top"]),
        ("ottla topic d", ["describe", "delete", "delete-records"]),
        ("ottla topic create x --part", ["--partitions"]),
        ("ottla cluster --only ", ["brokers", "features", "quorum", "log-dirs", "partitions", "moves"]),
        ("ottla group reset g --to-e", ["--to-earliest"]),
        ("ottla config list to", ["topic"]),
        ("ottla completion z", ["zsh"]),
        ("ottla topic describe -b {bootstrap} {topic_start}", ["{topic}"]),
        ("ottla group lag {group_start}", ["{group}"]),
    ],
)
def test_bash_completion(
    line: str, words: list[str], broker: RunningBroker, ottla: Run, topic: str, group: str
) -> None:
    names = {
        "topic": topic,
        "group": group,
        "topic_start": topic[:-3],
        "group_start": group[:-3],
        "bootstrap": broker.bootstrap,
    }
    environment = {
        **os.environ,
        "OTTLA_BOOTSTRAP": broker.bootstrap,
        "SCRIPT": ottla("completion", "bash").out,
        "LINE": line.format(**names),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ended = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.stderr == ""
    assert ended.stdout.split() == [word.format(**names) for word in words]


def test_bash_completion_joins_an_address_that_bash_has_split(broker: RunningBroker, topic: str) -> None:
    """Bash splits words at colons: `-b`, `127.0.0.1`, `:`, `9092`."""
    host, _, port = broker.bootstrap.rpartition(":")
    words = ["ottla", "topic", "describe", "-b", host, ":", port, topic[:-3]]
    environment = {
        **os.environ,
        "_OTTLA_COMPLETE": "bash_complete",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    ended = subprocess.run(OTTLA, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout.split() == [f"plain,{topic}"]


def test_completion_of_names_is_silent_without_a_cluster(monkeypatch: pytest.MonkeyPatch, plain: Run) -> None:
    for name, value in (
        ("_OTTLA_COMPLETE", "zsh_complete"),
        ("COMP_WORDS", "ottla topic describe -b 127.0.0.1:1 x"),
        ("COMP_CWORD", "5"),
    ):
        monkeypatch.setenv(name, value)
    answer = plain()
    assert (answer.code, answer.out.strip(), answer.err) == (0, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid(shell: str, plain: Run) -> None:
    answer = plain("completion", shell)
    assert answer.code == 0
    assert f"_OTTLA_COMPLETE={shell}_complete" in answer.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=answer.out, text=True, check=True, timeout=30)


def test_invalid_properties_file_is_a_usage_error(plain: Run, tmp_path: Path) -> None:
    file = tmp_path / "broken"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Failure) as caught:
        settings("--command-config", str(file))
    assert caught.value.exit_code == 2
