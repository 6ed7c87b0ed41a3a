"""The plugin as pytest runs it, in a pytest of its own: reports, options, workers, and no cost for those without it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from ottla.testing.waiting import wait_until
from tests import forked

FIXTURE_TEST = """
    def test_it(ottla):
        topic = ottla.topic()
        ottla.produce(topic, "x")
        assert ottla.consume(topic)[0].value == b"x"
"""


# Other plugins would take more than half of the time of a run: 1.2 s of CPU.
OPTIONS = "-p no:cacheprovider -p no:hypothesispytest -p no:anyio -p no:rerunfailures -W error"


class Run:
    """Runs pytest on a file in a directory of its own; warnings are errors there.

    It is forked from a process that has imported pytest, Ottla and clients, unless a test needs a fresh process.
    """

    def __init__(self, directory: Path, timeout_s: float = 60, *, is_fresh: bool = False) -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._is_fresh = is_fresh

    def __call__(self, text: str, *options: str, ini: str = "") -> tuple[int, str]:
        (self._directory / "test_it.py").write_text(textwrap.dedent(text))
        (self._directory / "pytest.ini").write_text(f"[pytest]\naddopts = {OPTIONS}\n{ini}")
        run = forked.run_really if self._is_fresh else forked.run
        done = run(["pytest", "test_it.py", *options], self._directory, self._timeout_s)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def run_fresh(tmp_path: Path) -> Run:
    return Run(tmp_path, is_fresh=True)


@pytest.mark.parametrize("options", [(), ("--ottla=process",), ("-n2",)], ids=["thread", "process", "xdist"])
def test_fixture_starts_a_broker_in_threads_processes_and_workers(run: Run, options: tuple[str, ...]) -> None:
    code, out = run(FIXTURE_TEST + FIXTURE_TEST.replace("test_it", "test_again"), *options)
    assert code == 0, out
    assert "2 passed" in out


def test_report_of_a_failed_test_lists_injected_faults_and_their_hits(run: Run) -> None:
    code, out = run(
        """
        from ottla.clients import Producer

        def test_it(ottla):
            topic = ottla.topic("orders")
            ottla.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2, topic=topic)
            ottla.faults.delay("Metadata", 5, client_id="somebody-else")
            with Producer(bootstrap_servers=ottla.bootstrap, client_id="shop", retry_backoff_ms=10) as producer:
                producer.send(topic, b"x").result(10)
            ottla.clock.advance(5)
            assert ottla.records(topic) == []
        """
    )
    assert code == 1
    assert "ottla: injected faults" in out
    assert "fail(Produce, NOT_LEADER_OR_FOLLOWER, topic='orders', times=2): hit 2 times" in out
    assert "Produce of orders-0 by client 'shop'" in out
    assert "delay(Metadata, 5 s, client_id='somebody-else', times=1): hit NOTHING" in out
    assert "clock.advance(5 s)" in out
    assert "1 failed" in out
    assert "error" not in out.rpartition("short test summary")[2], "missed faults of a failed test are reported once"


MISSED = """
    def test_it(ottla):
        ottla.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
"""


def test_fault_that_hit_no_request_fails_its_test(run: Run) -> None:
    code, out = run(MISSED)
    assert code == 1
    assert "Injected faults that hit nothing" in out
    assert "fail(Produce, NOT_LEADER_OR_FOLLOWER, times=1)" in out
    code, out = run(MISSED, "--ottla-missed-faults=ignore")
    assert code == 0, out
    code, out = run(MISSED, "-W", "default", ini="ottla_missed_faults = warn\n")
    assert code == 0, out
    assert "1 warning" in out
    code, out = run(MISSED.replace('")\n', '", may_miss=True)\n'))
    assert code == 0, out


def test_properties_from_the_ini_file(run: Run) -> None:
    text = """
        from ottla.clients import Admin

        def test_it(ottla):
            with Admin(bootstrap_servers=ottla.bootstrap) as admin:
                assert len(admin.describe_topic(ottla.topic(partitions=-1)).partitions) == 7
    """
    code, out = run(text, ini="ottla_properties =\n    num.partitions=7\n")
    assert code == 0, out


def test_misspelt_property_is_an_error(run: Run) -> None:
    text = """
        def test_it(ottla_broker):
            ottla_broker({"message.max.byts": 1000})
    """
    code, out = run(text)
    assert (code, "did you mean 'message.max.bytes'?" in out) == (1, True), out
    code, out = run("def test_it(ottla): pass", ini="ottla_properties =\n    num.partition=7\n")
    assert (code, "did you mean 'num.partitions'?" in out) == (1, True), out


def test_killed_or_paused_broker_serves_the_next_test(run: Run) -> None:
    code, out = run("""
        def test_kill(ottla):
            ottla.kill()

        def test_pause(ottla):
            ottla.pause()

        def test_fine(ottla):
            topic = ottla.topic()
            ottla.produce(topic, "x")
            assert len(ottla.records(topic)) == 1
    """)
    assert code == 0, out
    assert "3 passed" in out


def test_broker_process_ends_when_the_tests_crash(run: Run, tmp_path: Path) -> None:
    code, _ = run(
        """
        import os

        def test_it(ottla_session_broker):
            open("pid", "w").write(str(ottla_session_broker.pid))
            os._exit(3)
        """,
        "--ottla=process",
    )
    assert code == 3
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not _alive(pid), what=f"process {pid} to end")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_run_without_the_fixtures_imports_only_the_plugin(run_fresh: Run) -> None:
    code, out = run_fresh("""
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.split(".")[0] == "ottla"}
            testing = {f"ottla.testing{part}" for part in ("", ".late", ".plugin")}
            light = {"ottla", "ottla.common", "ottla.common.lazy", *testing}
            assert loaded <= light, loaded
    """)
    assert code == 0, out
    assert "1 passed" in out


def test_modules_of_ottla_are_not_rewritten_by_pytest(run_fresh: Run, tmp_path: Path) -> None:
    """As in an installed wheel: pytest rewrites the `assert`s of all modules of a distribution that has a plugin."""
    (tmp_path / "conftest.py").write_text("import pytest\n\npytest.register_assert_rewrite('ottla')\n")
    code, out = run_fresh(
        """
        from ottla.broker import server

        def test_it(ottla):
            assert type(server.__spec__.loader).__name__ == "SourceFileLoader"
        """,
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    )
    assert code == 0, out
