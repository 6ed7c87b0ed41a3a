"""The brokers that tests talk to.

`broker` is a running broker: Ottla as a real process, and stock Apache Kafka too where a test is marked `both` (that
shows that the test is right). `--brokers=kafka` runs every such test on stock Kafka alone, `--brokers=ottla` none.
Each is started once in a session (and pytest-xdist worker); all tests on stock Kafka go to one worker.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import hashlib
import importlib
import logging
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest
from xdist.remote import Producer

from ottla.common.log_lines import LimitedHandler
from tests.cluster.previous_release import previous
from tests.distribution import FileScheduling
from tests.group_names import pytest_runtest_logreport  # noqa: F401 - a hook
from tests.ottla_process import ForkedOttla

from .peers.cache import in_ci, missing_for_jvm

OTTLA, KAFKA = "ottla", "kafka"
# Tests join groups by the hundred; a person's first group may wait three seconds for more members.
TEST_PROPERTIES = {
    "group.initial.rebalance.delay.ms": 0,
    # The brokers choose the timers of KIP-848 groups.
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.session.timeout.ms": 5000,
    "group.consumer.session.timeout.ms": 5000,
    # The same for streams groups.
    "group.streams.min.heartbeat.interval.ms": 300,
    "group.streams.heartbeat.interval.ms": 300,
    "group.streams.min.session.timeout.ms": 5000,
    "group.streams.session.timeout.ms": 5000,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 0,
    # Records of tests have old timestamps: the first check of retention, 30 s after the start, would delete them.
    "log.initial.task.delay.ms": 3_600_000,
    # Tests wait for the abort of transactions that last too long.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    # Tests wait for the end of locks of share groups.
    "group.share.min.record.lock.duration.ms": 1000,
    # A member gets its partitions with the answer to a heartbeat.
    "group.share.min.heartbeat.interval.ms": 300,
    "group.share.heartbeat.interval.ms": 300,
}
LONGEST_PARAMETER = 200
GRACE_S = 120
"""How long a test may take after its timeout, to stop what it started."""
LOG_OFFSET = pytest.StashKey[int]()
STDERR = pytest.StashKey[int]()
# No test asserts times; a busy machine would exceed Hypothesis's limit of 200 ms for an example. `make fuzz` draws many
# more examples in the tests that do not choose a number of their own, or that choose a multiple of this one.
DRAWN_EXAMPLES = int(os.environ.get("OTTLA_DRAWN_EXAMPLES", "40"))
hypothesis.settings.register_profile("ottla", deadline=None, max_examples=DRAWN_EXAMPLES)
hypothesis.settings.load_profile("ottla")
HERE = Path(__file__).parent
# Beginnings of node ids: a path of each of thousands of tests would cost a second in each worker.
WITHOUT_JAVA = ("fuzz", "packaging", "protocol", "rest", "scenarios", "simulation", "testing", "unit")
"""Directories without tests that are marked `jvm`: `make test-kafka` does not collect them, in each of its workers."""
ONLY_JVM, ONLY_LONG = "jvm", "not jvm and long"
"""The expressions of `make test-kafka` and `make test-long`."""
LONG_MARK = "pytest.mark.long"
FOREIGN_CLIENTS = ("tests/interop/", *(f"tests/clients/test_{name}.py" for name in (
    "aiokafka", "confluent", "confluent_admin", "confluent_groups", "kafka_python", "kcat",
)))  # fmt: skip


class RunningBroker(Protocol):
    """The properties of a broker that a test may use."""

    kind: str
    bootstrap: str


class _Ottla:
    kind = OTTLA

    def __init__(self, directory: Path) -> None:
        self.process = ForkedOttla(directory, TEST_PROPERTIES)
        self.process.start()
        self.bootstrap = self.process.bootstrap

    def close(self) -> None:
        code = self.process.stop()
        self.process.assert_no_traceback()
        assert code == 0, f"exit code {code} after SIGTERM:\n{self.process.log_tail()}"


class _Kafka:
    """Stock Kafka; $OTTLA_TEST_KAFKA=HOST:PORT names one that runs already, which saves seconds while writing tests."""

    kind = KAFKA

    def __init__(self, directory: Path) -> None:
        from .peers.kafka import StockKafka

        running = os.environ.get("OTTLA_TEST_KAFKA")
        self._stock = None if running else StockKafka(directory, overrides=TEST_PROPERTIES)
        if self._stock is not None:
            self._stock.start()
        self.bootstrap = running or self._stock.bootstrap  # type: ignore[union-attr]

    def close(self) -> None:
        if self._stock is not None:
            self._stock.stop()


class Brokers:
    """The session's brokers by kind, each started when first asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, _Ottla | _Kafka] = {}
        self._failed: dict[str, str] = {}

    def get(self, kind: str) -> _Ottla | _Kafka:
        if kind in self._failed:
            pytest.fail(self._failed[kind], pytrace=False)
        if kind not in self._running:
            try:
                self._running[kind] = (_Ottla if kind == OTTLA else _Kafka)(self._directory / kind)
            except Exception as error:
                # Started once: the other tests fail at once instead of waiting for it each.
                self._failed[kind] = f"{kind} did not start: {error}"
                raise
        return self._running[kind]

    def close(self) -> None:
        errors = []
        for broker in self._running.values():
            try:
                broker.close()
            except AssertionError as error:
                errors.append(error)
        if errors:
            raise errors[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--brokers",
        default=os.environ.get("OTTLA_TEST_BROKERS", ""),
        help="comma-separated: ottla, kafka. Default: ottla, and stock Kafka for tests marked `both`.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "both: runs against stock Apache Kafka as well, which shows that the test is right"
    )
    config.stash[STDERR] = os.dup(2)  # pytest captures descriptor 2 during tests
    # kafka-python loads its schemas by an importlib function that newer Pythons deprecate.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    # A shell's background processes, and their children, ignore Ctrl-C, which some tests send.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"previous release of the upgrade test: {previous().reason}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    """Return how tests are distributed among the workers. None: as by pytest-xdist itself."""
    return FileScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore what has no test of `make test-kafka` or `make test-long` if only their tests were asked for."""
    expression = config.getoption("markexpr")
    if expression == ONLY_JVM and collection_path.parent == HERE and collection_path.name in WITHOUT_JAVA:
        return True
    if expression == ONLY_LONG and collection_path.match("test_*.py") and LONG_MARK not in collection_path.read_text():
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect without the garbage collector, which would search the growing tree of tests again and again.

    The tree lives as long as the session. Frozen, it costs no collection during the tests anything.
    """
    gc.disable()
    try:
        _import_by_turns(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def _import_by_turns(config: pytest.Config) -> None:
    """In a worker of pytest-xdist, import the test modules, beginning with the worker's own share of them.

    Pytest compiles each module with rewritten assertions, and caches the result in a file. This takes three times as
    long as the rest of the collection. Workers that begin at the same module would all compile all modules.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    directories = [path for path in (Path(argument).resolve() for argument in config.args) if path.is_dir()]
    names = sorted(
        ".".join(file.relative_to(HERE.parent).with_suffix("").parts)
        for file in HERE.rglob("test_*.py")
        if any(file.is_relative_to(directory) for directory in directories)
        and not pytest_ignore_collect(HERE / file.relative_to(HERE).parts[0], config)
        and not pytest_ignore_collect(file, config)
    )
    first = int(worker["workerid"].removeprefix("gw")) * len(names) // worker["workercount"]
    for name in names[first:] + names[:first]:
        # The collection reports the error of a module that cannot be imported.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)
    _find_constants(int(worker["workerid"].removeprefix("gw")) / worker["workercount"])


def _find_constants(begin: float) -> None:
    """Let Hypothesis parse the sources for the constants that its examples have, beginning with the worker's share.

    Hypothesis does this at the end of the collection and caches the result of each file in a file. Workers that begin
    at the same file would all parse all files, for four seconds each.
    """
    try:
        from hypothesis.internal.constants_ast import constants_from_module
    except ImportError:  # not an interface of Hypothesis: its collection takes longer without it
        return
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("ottla.")]
    first = int(begin * len(modules))
    for module in modules[first:] + modules[:first]:
        constants_from_module(module)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process with the stacks of all threads if a test still runs long after its timeout.

    pytest-timeout interrupts a test once, and cannot interrupt code in C: a test that then waits in its `finally` or in
    a fixture would wait for ever, and with it the whole run. pytest-xdist reports the test as failed, and continues in
    a new worker.
    """
    marker = item.get_closest_marker("timeout")
    own = None if marker is None else marker.kwargs.get("timeout", *marker.args)
    limit_s = float(item.config.getini("timeout") if own is None else own)
    faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The same for what runs at the end of the process."""
    faulthandler.dump_traceback_later(GRACE_S, exit=True, file=session.config.stash[STDERR])


def pytest_unconfigure(config: pytest.Config) -> None:
    """A worker of pytest-xdist waits for the last one before it ends. Then pytest-xdist kills it after 10 seconds."""
    if hasattr(config, "workerinput"):
        faulthandler.cancel_dump_traceback_later()


def refuse_uncollected(items: Iterable[pytest.Item]) -> None:
    """Raise pytest.UsageError for a test whose target does not collect its file: no target would run it."""
    without_java = tuple(f"tests/{name}/" for name in WITHOUT_JAVA)
    for item in items:
        if item.get_closest_marker("jvm") is not None:
            if item.nodeid.startswith(without_java):
                raise pytest.UsageError(f"{item.nodeid} is not collected by `make test-kafka`: see WITHOUT_JAVA")
        elif item.get_closest_marker("long") is not None and LONG_MARK not in item.path.read_text():
            raise pytest.UsageError(f"{item.nodeid} is not collected by `make test-long`: mark it in its own file")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rerun failed tests of third-party clients once; pytest lists them as RERUN. Their timing cannot be fixed here.

    Tests of Ottla's own clients, broker and tools must pass the first time.
    """
    refuse_uncollected(items)
    for item in items:
        if item.nodeid.startswith(FOREIGN_CLIENTS):
            # pytest-timeout sets its alarm once for both runs: the second one would have no deadline.
            item.add_marker(pytest.mark.flaky(reruns=1, rerun_except="from pytest-timeout"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker" not in metafunc.fixturenames:
        return
    chosen = [name for name in metafunc.config.getoption("--brokers").split(",") if name]
    if not chosen:
        chosen = [OTTLA, KAFKA] if metafunc.definition.get_closest_marker("both") else [OTTLA]
    unknown = set(chosen) - {OTTLA, KAFKA}
    if unknown:
        raise pytest.UsageError(f"--brokers knows {OTTLA} and {KAFKA}, not {', '.join(sorted(unknown))}")
    # Two workers, each with a stock broker: one would be the last by minutes.
    group = "stock-interop" if "/interop/" in metafunc.definition.nodeid else "stock-kafka"
    stock = [pytest.mark.jvm, pytest.mark.xdist_group(group)]
    metafunc.parametrize("broker", [pytest.param(k, marks=stock if k == KAFKA else []) for k in chosen], indirect=True)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the names of tests with large parameters, which pytest-xdist sends with each report."""
    if isinstance(val, bytes | str) and len(val) > LONGEST_PARAMETER:
        content = val if isinstance(val, bytes) else val.encode(errors="surrogatepass")
        return f"{len(val)}-{hashlib.sha1(content).hexdigest()[:8]}"
    return None


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    running = Brokers(tmp_path_factory.mktemp("brokers"))
    yield running
    running.close()


@pytest.fixture
def broker(request: pytest.FixtureRequest, brokers: Brokers) -> RunningBroker:
    """A running broker, shared by the session: use topics and groups of your own."""
    missing = missing_for_jvm() if request.param == KAFKA else None
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    running = brokers.get(request.param)
    if isinstance(running, _Ottla):
        request.node.stash[LOG_OFFSET] = running.process.log_size()
    return running


@pytest.fixture(autouse=True)
def _no_handler_of_a_command() -> Iterator[None]:
    """Remove the log handler that a command in this process installed: its stream is closed after the test."""
    yield
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, LimitedHandler)]:
        root.removeHandler(handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show what the shared broker logged during a test that failed."""
    report = yield
    running = getattr(item, "funcargs", {}).get("broker")
    if report.failed and isinstance(running, _Ottla):
        tail = running.process.log_tail(since=item.stash.get(LOG_OFFSET, 0))
        report.sections.append(("the broker's log during this test", tail or "(nothing)"))
    return report
