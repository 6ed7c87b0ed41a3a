"""The pytest plugin: `def test_x(ottla)` has a real broker, in milliseconds.

Loaded into every pytest of whoever installed Ottla, so it imports nothing of it before a fixture is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.process import ProcessBroker
    from ottla.testing.running import ThreadBroker
    from ottla.testing.view import Ottla

_FAIL, _WARN, _IGNORE = "fail", "warn", "ignore"
_views = pytest.StashKey[list["Ottla"]]()
_failed = pytest.StashKey[bool]()


class _AsTheyAre:
    """Finds Ottla's modules before pytest does.

    Pytest compiles all modules of a distribution with a plugin anew, for the sake of their `assert`s: half a second
    that a broker's start would take longer.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Called for each import."""
        return PathFinder.find_spec(name, path, target) if name.startswith("ottla.") else None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before anybody imports anything of Ottla."""
    if _AsTheyAre not in sys.meta_path:
        sys.meta_path.insert(0, _AsTheyAre)


def pytest_unconfigure() -> None:
    """Leave nothing behind."""
    if _AsTheyAre in sys.meta_path:
        sys.meta_path.remove(_AsTheyAre)


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
    parser.addini("ottla_broker", "as --ottla", default="thread")
    parser.addini("ottla_missed_faults", "as --ottla-missed-faults", default=_FAIL)
    parser.addini("ottla_properties", "settings of the broker, NAME=VALUE a line", type="linelist", default=[])


def _option(config: pytest.Config, name: str, ini: str) -> str:
    return str(config.getoption(name) or config.getini(ini))


def _check_names(names: Iterable[str]) -> None:
    """Raise UsageError for a slip of the pen. A broker only warns of it, where a test does not look."""
    from ottla.config import BROKER_SETTINGS
    from ottla.config.broker import suggest

    for name in names:
        meant = None if name in BROKER_SETTINGS else suggest(name)
        if meant:
            raise pytest.UsageError(f"A broker has no setting {name!r}; did you mean {meant!r}?")


def _make(config: pytest.Config, properties: Mapping[str, object]) -> ThreadBroker | ProcessBroker:
    settings: dict[str, object] = {}
    for line in config.getini("ottla_properties"):
        name, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"ottla_properties: {line!r} is not of the form NAME=VALUE")
        settings[name.strip()] = value.strip()
    settings |= properties
    _check_names(settings)
    if _option(config, "ottla", "ottla_broker") == "process":
        from ottla.testing.process import ProcessBroker

        return ProcessBroker(settings)
    from ottla.testing.running import ThreadBroker

    return ThreadBroker(settings)


@pytest.fixture(scope="session")
def ottla_session_broker(request: pytest.FixtureRequest) -> Iterator[ThreadBroker | ProcessBroker]:
    """The broker behind `ottla`, for fixtures of a wider scope: `.bootstrap`. One for each pytest-xdist worker."""
    broker = _make(request.config, {})
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@pytest.fixture
def ottla(request: pytest.FixtureRequest, ottla_session_broker: ThreadBroker | ProcessBroker) -> Iterator[Ottla]:
    """A real Kafka broker: `ottla.bootstrap` for any client, topics per test, helpers, faults. See docs/testing.md."""
    yield from _view(request, ottla_session_broker)


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Callable[..., Ottla]]:
    """`ottla_broker(**{"message.max.bytes": 1000})`: a fresh broker with settings of its own, for this test alone."""
    brokers: list[ThreadBroker | ProcessBroker] = []
    views: list[Iterator[Ottla]] = []

    def make(properties: Mapping[str, object] | None = None, /, **more: object) -> Ottla:
        broker = _make(request.config, {**(properties or {}), **{k.replace("_", "."): v for k, v in more.items()}})
        brokers.append(broker)
        broker.start()
        view = _view(request, broker, keep=True)
        views.append(view)
        return next(view)

    try:
        yield make
        for view in views:
            next(view, None)
    finally:
        for broker in brokers:
            broker.close()


def _view(
    request: pytest.FixtureRequest, broker: ThreadBroker | ProcessBroker, *, keep: bool = False
) -> Iterator[Ottla]:
    from ottla.testing.view import Ottla

    view = Ottla(broker, getattr(request.node, "originalname", None) or request.node.name)
    request.node.stash.setdefault(_views, []).append(view)
    yield view
    if keep:
        broker.resume()
        view.faults.end()
    else:
        view.end()
    missed = view.faults.missed()
    if not missed or request.node.stash.get(_failed, False):
        return
    wanted = _option(request.config, "ottla_missed_faults", "ottla_missed_faults")
    message = "Injected faults that hit nothing:\n" + "\n".join(f"  {fault}" for fault in missed)
    if wanted == _FAIL:
        pytest.fail(f"{message}\nThe test did not see them. Where that is well, say may_miss=True", pytrace=False)
    if wanted == _WARN:
        import warnings

        warnings.warn(pytest.PytestWarning(message), stacklevel=2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001 - pytest's names
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say in the report of a failed test which faults were injected, and what they hit."""
    report = yield
    views = item.stash.get(_views, None)
    if views and report.failed:
        item.stash[_failed] = True
        told = "\n".join(text for view in views if (text := view.faults.report()))
        if told:
            report.sections.append(("ottla: injected faults", told))
    return report
