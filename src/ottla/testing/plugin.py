"""The pytest plugin: `def test_x(ottla)` has a real broker within milliseconds.

Every pytest run of an environment with Ottla loads this module. It therefore imports other modules of Ottla only when a
fixture is used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from ottla.testing import late

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.streams.declarations import Pipeline
    from ottla.streams.testing import PipelineTest
    from ottla.testing.cluster import OttlaCluster
    from ottla.testing.connect import ConnectWorker
    from ottla.testing.process import ProcessBroker
    from ottla.testing.registry import RegistryThread
    from ottla.testing.running import ThreadBroker
    from ottla.testing.secured import BrokerSecurity
    from ottla.testing.view import Ottla
_FAIL, _WARN, _IGNORE, _KEEP = "fail", "warn", "ignore", "keep"
_UNCLOSED = (_WARN, _FAIL, _IGNORE, _KEEP)
_views = pytest.StashKey[list["Ottla"]]()
_clusters = pytest.StashKey[list["OttlaCluster"]]()
_failed = pytest.StashKey[bool]()


class UnclosedClientWarning(pytest.PytestWarning):
    """A test left a Kafka client open."""


class _PlainFinder:
    """Finds Ottla's modules before pytest's import hook does.

    Pytest rewrites the `assert` statements of all modules of a distribution with a plugin. That would add half a second
    to the start of a broker.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Called for each import."""
        return PathFinder.find_spec(name, path, target) if name.startswith("ottla.") else None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Install the finder before any module of Ottla is imported."""
    if _PlainFinder not in sys.meta_path:
        sys.meta_path.insert(0, _PlainFinder)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", "ottla_unclosed(policy): as --ottla-unclosed, for some tests")
    config.addinivalue_line("markers", "ottla(**arguments): the fixture `ottla` is a new broker, as of `ottla_broker`")


def pytest_unconfigure() -> None:
    """Remove the finder."""
    if _PlainFinder in sys.meta_path:
        sys.meta_path.remove(_PlainFinder)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    group = parser.getgroup("ottla", "Ottla: a real Kafka broker for tests")
    group.addoption(
        "--ottla",
        choices=("thread", "process"),
        default=None,
        help="where the fixture's broker runs: in a thread of the tests (default), or in a process beside them",
    )
    group.addoption(
        "--ottla-missed-faults",
        choices=(_FAIL, _WARN, _IGNORE),
        default=None,
        help="what an injected fault that hit nothing does to its test: fail (default), warn, ignore",
    )
    group.addoption(
        "--ottla-unclosed",
        choices=_UNCLOSED,
        default=None,
        help="what a client that a test left open does: warn (default), fail, ignore; keep does not close it either",
    )
    parser.addini("ottla_unclosed", "as --ottla-unclosed", default=_WARN)
    parser.addini("ottla_broker", "as --ottla", default="thread")
    parser.addini("ottla_missed_faults", "as --ottla-missed-faults", default=_FAIL)
    parser.addini("ottla_properties", "settings of the broker, NAME=VALUE a line", type="linelist", default=[])


def _option(config: pytest.Config, name: str, ini: str) -> str:
    return str(config.getoption(name) or config.getini(ini))


def _check_names(names: Iterable[str]) -> None:
    """Raise UsageError for misspelt settings. A broker only logs a warning, which tests do not show."""
    for name in names:
        meant = None if name in late.config.BROKER_SETTINGS else late.suggest(name)
        if meant:
            raise pytest.UsageError(f"A broker has no setting {name!r}; did you mean {meant!r}?")


def _settings(config: pytest.Config, properties: Mapping[str, object]) -> dict[str, object]:
    """The settings of the session and of one broker."""
    settings: dict[str, object] = {}
    for line in config.getini("ottla_properties"):
        name, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"ottla_properties: {line!r} is not of the form NAME=VALUE")
        settings[name.strip()] = value.strip()
    settings |= properties
    _check_names(settings)
    return settings


def _new_broker(config: pytest.Config, properties: Mapping[str, object]) -> ThreadBroker | ProcessBroker:
    settings = _settings(config, properties)
    if _option(config, "ottla", "ottla_broker") == "process":
        return late.process.ProcessBroker(settings)
    return late.running.ThreadBroker(settings)


@pytest.fixture(scope="session")
def ottla_session_broker(request: pytest.FixtureRequest) -> Iterator[ThreadBroker | ProcessBroker]:
    """The broker of the fixture `ottla`, for fixtures with a wider scope. One for each pytest-xdist worker."""
    broker = _new_broker(request.config, {})
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@pytest.fixture
def ottla(request: pytest.FixtureRequest) -> Iterator[Ottla]:
    """A real Kafka broker: `ottla.bootstrap` for any client, topics per test, helpers, faults. See docs/testing.md.

    A test with the marker `ottla(...)` has a new broker with these arguments of `ottla_broker`.
    """
    marker = request.node.get_closest_marker("ottla")
    if marker is None:
        yield from _view(request, request.getfixturevalue("ottla_session_broker"))
    else:
        yield request.getfixturevalue("ottla_broker")(*marker.args, **marker.kwargs)


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Callable[..., Ottla]]:
    """`ottla_broker({"message.max.bytes": 1000})`: a new broker with its own settings, only for this test.

    `ottla_broker(security="SASL_SSL", users=["ann"])`: its clients log in; `.settings(library)` has what they need.
    """
    brokers: list[ThreadBroker | ProcessBroker] = []
    views: list[Iterator[Ottla]] = []
    secured: list[BrokerSecurity] = []

    def make(
        properties: Mapping[str, object] | None = None,
        /,
        *,
        security: str | None = None,
        users: Iterable[str] | None = None,
        **more: object,
    ) -> Ottla:
        if security is None and users is not None:
            raise ValueError("users are for a secured broker: pass security= too")
        own: dict[str, object] = {}
        if security is not None:
            secured.append(late.secured.BrokerSecurity(security, users or late.secured.DEFAULT_USERS))
            own = secured[-1].broker_settings()
        given = {**(properties or {}), **{k.replace("_", "."): v for k, v in more.items()}}
        broker = _new_broker(request.config, own | given)
        brokers.append(broker)
        broker.start()
        view = _view(request, broker, keep=True, security=secured[-1] if security is not None else None)
        views.append(view)
        return next(view)

    try:
        yield make
        for view in views:
            next(view, None)
    finally:
        for broker in brokers:
            broker.close()
        for each in secured:
            each.close()


@pytest.fixture
def ottla_registry(ottla: Ottla) -> Iterator[RegistryThread]:
    """A schema registry on the broker of the test: `ottla_registry.url` for any client. Needs ottla[registry]."""
    with late.registry.RegistryThread(ottla.bootstrap) as registry:
        yield registry


@pytest.fixture
def ottla_connect(ottla: Ottla) -> Iterator[Callable[..., ConnectWorker]]:
    """`ottla_connect()`: a worker on the broker of the test that runs connectors. Needs ottla[connect].

    Arguments are settings of the worker: `ottla_connect({"exactly.once.source.support": "enabled"})`.
    """
    workers: list[ConnectWorker] = []

    def make(settings: Mapping[str, str] | None = None) -> ConnectWorker:
        workers.append(_connect_testing().ConnectWorker(ottla.bootstrap, settings))
        return workers[-1]

    try:
        yield make
    finally:
        for each in workers:
            each.close()


def _connect_testing() -> Any:
    """The module that needs ottla[connect], which is not part of every environment with this plugin."""
    return importlib.import_module("ottla.testing.connect")


@pytest.fixture(scope="session")
def ottla_spark() -> Iterator[SparkSession]:
    """The Spark session of `ottla_streams`. Override it to use one of your own."""
    testing = _streams_testing()
    session = testing.session()
    yield session
    testing.stop(session)


@pytest.fixture
def ottla_streams(ottla: Ottla, ottla_spark: SparkSession) -> Iterator[Callable[[Pipeline], PipelineTest]]:
    """`ottla_streams(wordcount)`: a pipeline of `ottla.streams` on the broker of the test. See docs/streams.md."""
    running: list[PipelineTest] = []

    def start(pipeline: Pipeline) -> PipelineTest:
        running.append(_streams_testing().PipelineTest(ottla_spark, ottla, pipeline))
        return running[-1]

    try:
        yield start
    finally:
        for each in running:
            each.close()


def _streams_testing() -> Any:
    """The module that needs Spark, which is not part of every environment with this plugin."""
    return importlib.import_module("ottla.streams.testing")


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> Iterator[Callable[..., OttlaCluster]]:
    """`ottla_cluster(3)`: a cluster of brokers in processes, only for this test; each can be killed and started again.

    Settings as with `ottla_broker`: `ottla_cluster(3, {"message.max.bytes": 1000})`.
    """
    clusters: list[OttlaCluster] = []
    request.node.stash[_clusters] = clusters

    def make(brokers: int = 3, properties: Mapping[str, object] | None = None, /, **more: object) -> OttlaCluster:
        own = {**(properties or {}), **{k.replace("_", "."): v for k, v in more.items()}}
        cluster = late.cluster.OttlaCluster(brokers, _settings(request.config, own))
        clusters.append(cluster)
        cluster.start_all()
        return cluster

    try:
        yield make
    finally:
        for cluster in clusters:
            cluster.close()


def _view(
    request: pytest.FixtureRequest,
    broker: ThreadBroker | ProcessBroker,
    *,
    keep: bool = False,
    security: BrokerSecurity | None = None,
) -> Iterator[Ottla]:
    unclosed_policy = _unclosed_policy(request)
    name = getattr(request.node, "originalname", None) or request.node.name
    # The port of a test has neither TLS nor SASL, so that clients of a secured broker use the broker's own.
    own_port = unclosed_policy != _KEEP and security is None
    view = late.view.Ottla(broker, name, own_port=own_port, security=security)
    request.node.stash.setdefault(_views, []).append(view)
    yield view
    failed = request.node.stash.get(_failed, False)
    # The traceback of a failed test references its clients, so they are not reported.
    unclosed = view.end(keep=keep, wait=not failed)
    if failed:
        return
    problems = []
    if unclosed and unclosed_policy != _IGNORE:
        problems += _report(request, unclosed_policy, UnclosedClientWarning(late.unclosed.describe(unclosed)))
    missed = view.faults.missed()
    if missed:
        message = "Injected faults that hit nothing:\n" + "\n".join(f"  {fault}" for fault in missed)
        advice = "\nThe test did not exercise them. If that is intended, pass may_miss=True"
        policy = _option(request.config, "ottla_missed_faults", "ottla_missed_faults")
        problems += _report(request, policy, pytest.PytestWarning(message), advice)
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def _report(request: pytest.FixtureRequest, policy: str, warning: pytest.PytestWarning, advice: str = "") -> list[str]:
    """Warn at the test, or return the failure's message. A filter may turn the warning into an error."""
    if policy == _WARN:
        try:
            request.node.warn(warning)
        except pytest.PytestWarning:
            return [f"{warning}{advice}"]
    return [f"{warning}{advice}"] if policy == _FAIL else []


def _unclosed_policy(request: pytest.FixtureRequest) -> str:
    marker = request.node.get_closest_marker("ottla_unclosed")
    if marker is None and "ottla_streams" in request.fixturenames:
        # The clients belong to Spark's Python workers, which use them in the next test, too.
        return _KEEP
    policy = marker.args[0] if marker and marker.args else _option(request.config, "ottla_unclosed", "ottla_unclosed")
    if policy not in _UNCLOSED:
        raise pytest.UsageError(f"ottla_unclosed: {policy!r} is not one of {', '.join(_UNCLOSED)}")
    return str(policy)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001 - pytest's names
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the injected faults and their hits, and the logs of a cluster, to the report of a failed test."""
    report = yield
    views = item.stash.get(_views, None)
    if views and report.failed:
        item.stash[_failed] = True
        reported = "\n".join(text for view in views if (text := view.faults.report()))
        if reported:
            report.sections.append(("ottla: injected faults", reported))
    if report.failed:
        for cluster in item.stash.get(_clusters, []):
            report.sections += [(f"ottla: log of broker {b.node_id}", b.log()) for b in cluster.brokers.values()]
    return report
