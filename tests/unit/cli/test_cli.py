"""The command line: options and settings of a broker, help, errors, and the process of `ottla up`."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from ottla.cli.main import main
from ottla.cli.root import SUMMARIES
from ottla.common.failure import Failure
from ottla.config import BrokerConfig
from ottla.launch import serve
from ottla.launch import settings as broker_settings
from ottla.records.kernels import COMPILED
from tests.cli.commands import options_of


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """`ottla up` replaces the root logger's handlers by one that writes to this test's standard error."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def config_of(*words: str) -> BrokerConfig:
    return broker_settings.broker_config(options_of("up", *words))


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name}" in text for name in SUMMARIES)


@pytest.mark.parametrize("name", SUMMARIES)
def test_help_of_a_command_shows_its_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"Usage: ottla {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("help", "Usage: ottla COMMAND"),
        ("help topic create", "Usage: ottla topic create"),
        ("consume --topic orders", "pass the topic name as an argument"),
        ("consume orders --max-messages 5", "use -n"),
    ],
)
def test_options_of_kafkas_tools_get_a_hint(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(words.split())
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert code == (0 if words.startswith("help") else 2)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--data d --listen 127.0.0.1:0 --log-level debug --node-id 3 --config f",
        "--data=d -X num.partitions=3 -X log.dirs=a,b -X a=",
    ],
)
def test_parsing_without_click_gives_the_same_options(words: str) -> None:
    assert serve.plain_options(words.split()) == options_of("up", *words.split())


@pytest.mark.parametrize(
    "words", ["--help", "-h", "--dat x", "data", "--data", "-X", "-Xa=b", "--log-level none", "-X --data", "--data -x"]
)
def test_other_spellings_and_errors_are_left_to_click(words: str) -> None:
    assert serve.plain_options(words.split()) is None


def test_help_imports_neither_the_broker_nor_asyncio() -> None:
    code = (
        "import sys, contextlib, io\nfrom ottla.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): main(['--help'])\n"
        "print([name for name in sys.modules if name in ('asyncio', 'uvloop', 'ottla.config', 'ottla.broker')])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert answer.stdout.strip() == "[]"


def test_start_of_a_broker_does_not_import_modules_that_are_needed_later() -> None:
    """The import of each of these takes a millisecond or more, and a broker may never need it."""
    code = (
        "import sys\nfrom ottla.cli import main\nfrom ottla.launch import serve\nserve.plain_options([])\n"
        "import ottla.broker.server, ottla.records.survey\n"
        "late = ('random', 'shutil', 'ottla.coordinators', 'ottla.coordination.runtime', 'ottla.log.cleaner',"
        " 'ottla.records.column_kernels', 'ottla.clients')\n"
        "print([name for name in late if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert answer.stdout.strip() == "[]"


def test_no_command_shows_the_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "ottla COMMAND" in capsys.readouterr().out


def test_options_override_the_file_and_x_overrides_options(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.dirs=/from/file\nnode.id=3\nnum.io.threads=9\n")
    config = config_of("--config", str(file), "--data", "/from/option", "-X", "num.partitions=4", "-X", "node.id=5")
    assert (config.int("num.partitions"), config.log_dirs, config.node_id) == (4, ["/from/option"], 5)
    assert config_of("--config", str(file)).log_dirs == ["/from/file"]


@pytest.mark.parametrize(
    ("listen", "listener"),
    [
        ("127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"),
        ("[::1]:9092", "PLAINTEXT://[::1]:9092"),
        (":9093", "PLAINTEXT://127.0.0.1:9093"),
        ("9094", "PLAINTEXT://127.0.0.1:9094"),
        ("0.0.0.0:9095", "PLAINTEXT://0.0.0.0:9095"),
    ],
)
def test_listen_replaces_the_listeners_of_the_file(listen: str, listener: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=A://:1,CONTROLLER://:2\nadvertised.listeners=A://h:1\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=A:PLAINTEXT,CONTROLLER:PLAINTEXT\ninter.broker.listener.name=A\n"
    )
    assert [str(each) for each in config_of("--config", str(file), "--listen", listen).listeners] == [listener]


def test_environment_sets_the_default_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_DATA", "/some/where")
    assert config_of().log_dirs == ["/some/where"]
    monkeypatch.delenv("OTTLA_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", "/data/home")
    assert config_of().log_dirs == ["/data/home/ottla"]


@pytest.mark.parametrize(
    "words",
    [
        ("-X", "nonsense"),
        ("-X", "=1"),
        ("--listen", "here"),
        ("--listen", "host:70000"),
        ("--listen", "70000"),
        ("--config", "/no/such/file"),
        ("-X", "num.partitions=none"),
        ("--node-id", "x"),
        ("--data", ""),
        ("--data", "a,b"),
        ("--data", "a "),
        ("-X", "broker.rack=\udcff"),
        ("-X", "broker\udcff=1"),
        ("--data", "/tmp/\udcff"),
        ("--listen", "\udcff:1"),
    ],
)
def test_invalid_option_is_an_error_in_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Failure) as caught:
        config_of(*words)
    assert caught.value.exit_code == 2
    assert main(["up", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("ottla: ")
    assert error.count("\n") == 1


def test_several_log_directories_need_the_setting_log_dirs(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"-X log\.dirs=a,b"):
        config_of("--data", "a,b")
    assert config_of("-X", f"log.dirs={tmp_path}/a,{tmp_path}/b").log_dirs == [f"{tmp_path}/a", f"{tmp_path}/b"]


def test_default_directory_with_a_comma_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_DATA", "/a,/b")
    with pytest.raises(Failure, match="'/a,/b' contains a comma"):
        config_of()


@pytest.mark.parametrize("locale", ["POSIX", "C.UTF-8"])
def test_setting_that_is_not_text_is_an_error_in_one_line(locale: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "up", "--data", str(tmp_path / "data"), "-X"]
    done = subprocess.run(
        [*(word.encode() for word in command), b"broker.rack=\xff\xfe"],
        capture_output=True,
        check=False,
        timeout=30,
        env={**os.environ, "LC_ALL": locale},
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"ottla: broker.rack: the name or the value is not text in UTF-8\n"


def test_format_gives_directories_an_identity_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "format",
        "-X",
        f"log.dirs={tmp_path}/a,{tmp_path}/b",
        "--node-id",
        "4",
        "--cluster-id",
        "MkU3OEVBNTcwNTJENDM2Qk",
    ]
    assert main(words) == 0
    assert capsys.readouterr().out.count("cluster MkU3OEVBNTcwNTJENDM2Qk, node 4, directory ") == 2
    assert main(words) == 1
    assert "already formatted" in capsys.readouterr().err
    assert main([*words, "--ignore-formatted"]) == 0
    assert main(["format", "--data", str(tmp_path / "c"), "--cluster-id", "short"]) == 2
    assert not (tmp_path / "c").exists()


def test_node_id_comes_from_the_formatted_directory(tmp_path: Path) -> None:
    assert main(["format", "--data", str(tmp_path), "--node-id", "4"]) == 0
    assert config_of("--data", str(tmp_path)).node_id == 4
    assert config_of("--data", str(tmp_path), "--node-id", "5").node_id == 5


def test_directory_that_cannot_be_created_is_reported_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["format", "--data", str(tmp_path / "file" / "x")]) == 1
    assert f"{tmp_path}/file/x cannot be used: the path, or a part of it, is a file" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["ottla", "ottla.cli.main"])
def test_module_can_be_run_and_version_names_the_kernels(module: str) -> None:
    last_lines = {}
    for kernels in ("auto", "fallback"):
        environment = {**os.environ, "OTTLA_KERNELS": kernels}
        words = [sys.executable, "-m", module, "version"]
        answer = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30, env=environment)
        last_lines[kernels] = answer.stdout.splitlines()[-1]
    assert last_lines["auto"] == ("kernels are compiled" if COMPILED else last_lines["fallback"])
    assert last_lines["fallback"].startswith("kernels are plain Python, which is slower")


def test_ctrl_c_during_the_imports_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "logging.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-m", "ottla", "topic", "list"]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=30, env=environment, check=False)
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "")


# -- a real process --------------------------------------------------------------------------------------------


class Up:
    """A process of `ottla up` whose output goes to files."""

    def __init__(self, directory: Path, name: str, *words: str, stdout: int | None = None) -> None:
        self._out, self._err = directory / f"{name}.out", directory / f"{name}.err"
        command = [sys.executable, "-m", "ottla.cli.main", "up", *words]
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(command, stdout=out if stdout is None else stdout, stderr=err)

    @property
    def pipe(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def first_line(self) -> str:
        deadline = time.monotonic() + 20
        while "\n" not in self._out.read_text():
            assert self._process.poll() is None, self._err.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self._out.read_text().partition("\n")[0]

    def send(self, *signals: signal.Signals) -> None:
        """Send signals to the process, one after another."""
        for number in signals:
            self._process.send_signal(number)

    def finish(self, by: signal.Signals | None = None) -> tuple[int, str, str]:
        """Send a signal, if given, and wait; returns the exit code, standard output and standard error."""
        if by is not None:
            self._process.send_signal(by)
        try:
            code = self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=20)
            raise
        return code, self._out.read_text(), self._err.read_text()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_broker_prints_its_address_first_and_stops_cleanly(tmp_path: Path, by: signal.Signals) -> None:
    up = Up(tmp_path, "up", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "-X", "num.io.threads=9")
    first = up.first_line()
    host, _, port = first.removeprefix("bootstrap=").strip().rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        code, out, err = up.finish(by)
    assert first.startswith("bootstrap=127.0.0.1:")
    assert code == 0, err
    assert "Ctrl-C" in out
    assert "num.io.threads=9 has no effect" in err
    assert "Stopped cleanly" in err
    assert "\x1b[" not in out + err
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("words", "exposed"),
    [
        (("--listen", "127.0.0.1:0"), None),
        (("--listen", "localhost:0"), None),
        (("--listen", "0"), None),
        (("--listen", ":0"), None),
        (("--listen", "0.0.0.0:0"), "PLAINTEXT://0.0.0.0:0"),
        (("-X", "listeners=PLAINTEXT://:0"), "PLAINTEXT://:0"),
        (
            (
                *("-X", "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:0"),
                *("-X", "controller.listener.names=CONTROLLER"),
            ),
            "CONTROLLER://:0",
        ),
    ],
)
def test_listening_beyond_this_machine_needs_permission_and_is_a_warning(
    tmp_path: Path, words: tuple[str, ...], exposed: str | None
) -> None:
    if exposed is not None:
        refused = Up(tmp_path, "up", "--data", str(tmp_path / "data"), *words)
        code, out, err = refused.finish()
        assert (code, out) == (1, "")
        assert f"{exposed} would be open to other machines without authentication" in err
        assert "or start with --insecure (ottla.insecure=true)" in err
        assert not (tmp_path / "data").exists()
    up = Up(tmp_path, "up", "--data", str(tmp_path / "data"), "--insecure", *words)
    up.first_line()
    code, _, err = up.finish(signal.SIGTERM)
    assert code == 0, err
    warnings = [line for line in err.splitlines() if "without authentication" in line]
    assert len(warnings) == (exposed is not None)
    assert exposed is None or f" on {exposed}, " in warnings[0]


def test_signals_in_quick_succession_count_as_one(tmp_path: Path) -> None:
    up = Up(tmp_path, "up", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    up.first_line()
    up.send(signal.SIGINT, signal.SIGTERM, signal.SIGINT)
    code, _, err = up.finish(signal.SIGTERM)
    assert (code, "at once" in err) == (0, False), err
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_script_may_close_the_output_after_the_first_line(tmp_path: Path) -> None:
    up = Up(tmp_path, "up", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", stdout=subprocess.PIPE)
    assert up.pipe.readline().startswith(b"bootstrap=")
    up.pipe.close()
    code, _, err = up.finish(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_port_or_directory_in_use_is_an_error_with_the_reason(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    up = Up(tmp_path, "up", "--data", data, "--listen", "127.0.0.1:0")
    address = up.first_line().removeprefix("bootstrap=")
    same_port = Up(tmp_path, "port", "--data", str(tmp_path / "other"), "--listen", address).finish()
    same_data = Up(tmp_path, "data", "--data", data, "--listen", "127.0.0.1:0").finish()
    assert up.finish(signal.SIGTERM)[0] == 0
    assert (same_port[:2], same_data[:2]) == ((1, ""), (1, ""))
    assert f"{address} is in use" in same_port[2]
    assert f"is held by process {up._process.pid}: stop that broker, or choose another" in same_data[2]
    assert "Traceback" not in same_port[2] + same_data[2]


def test_warnings_of_a_command_that_logs_are_printed_once() -> None:
    code = (
        "import logging\nfrom ottla.cli.terminal import warn_of_clients\n"
        "from ottla.launch.console import start_logging\n"
        "warn_of_clients(); start_logging('info'); logging.getLogger('ottla.streams').warning('Restarting')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr.count("Restarting") == 1
