"""Run a broker in the foreground until a signal stops it.

The first line on standard output is `bootstrap=HOST:PORT`, as soon as clients can connect. This module and its imports
must not import click, which would take a third of the broker's start time.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ottla.common.errors import KafkaError
from ottla.common.failure import Failure
from ottla.common.garbage import search_less
from ottla.config import BrokerConfig
from ottla.config.metrics_rows import KEYSTORE, LISTENER
from ottla.launch import late
from ottla.launch import settings as broker_settings
from ottla.launch.console import LOG_FORMATS, LOG_LEVELS, NOT_COMPILED, announce, start_logging
from ottla.launch.stopping import ONE_REQUEST_S, SUPERVISED
from ottla.launch.storage import cannot_listen, unusable
from ottla.log.storage import StorageError
from ottla.network.sockets import ListenError
from ottla.records.kernels import COMPILED

if TYPE_CHECKING:
    from ottla.cluster.node.bootstrap import Bootstrap
    from ottla.launch.companions import Companions
    from ottla.launch.secured import LocalSecurity

logger = logging.getLogger("ottla.up")

_STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PLAIN_OPTIONS = ("--data", "--config", "--node-id", "--listen", "--brokers", "--log-level", "--log-format")


def plain_options(words: Sequence[str]) -> SimpleNamespace | None:
    """Parse the words after `ottla up`; None if click must parse them: for help, errors and other spellings."""
    options = SimpleNamespace(data=None, config=None, node_id=None, listen=None, brokers=None, overrides=())
    options.registry = options.console = options.metrics = None
    options.insecure, options.secure, options.log_level = False, False, "info"
    options.log_format = None
    rest = iter(words)
    for word in rest:
        if word == "--insecure":
            options.insecure = True
            continue
        name, separator, value = word.partition("=")
        if not separator:
            value = next(rest, "-")
        if value.startswith("-"):
            return None
        if word == "-X":
            options.overrides += (value,)
        elif name in _PLAIN_OPTIONS:
            setattr(options, name[2:].replace("-", "_"), value)
        else:
            return None
    return options if options.log_level in LOG_LEVELS and options.log_format in (None, *LOG_FORMATS) else None


def run(options: SimpleNamespace) -> int:
    """Run a node until a signal arrives, or a cluster of several nodes."""
    if options.brokers is not None and options.brokers != "1":
        return late.supervise.run(options)
    gc.disable()  # Objects that the start creates are never garbage; see `_announce`.
    start_logging(options.log_level, options.log_format)
    security = _security(options)
    config = broker_settings.broker_config(options, security)
    _refuse_cluster(config)
    for warning in config.warnings:
        logger.warning("%s", warning)
    _raise_file_limit()
    # Without the import, which most brokers do not need.
    has_companions = getattr(options, "registry", None) is not None or getattr(options, "console", None) is not None
    companions = late.companions.companions(options) if has_companions else None
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            runner.run(_serve(config, security, companions))
        except (StorageError, KafkaError) as error:
            raise Failure(str(error)) from error
        except OSError as error:
            raise _explain(config, error) from error
    return 0


def _refuse_cluster(config: BrokerConfig) -> None:
    """Raise Failure if the data directory belongs to a cluster: a new broker in it would seem to have lost the data."""
    home = config.log_dirs[0]
    if os.path.exists(f"{home}/node-1/data/meta.properties") and not os.path.exists(f"{home}/meta.properties"):
        raise Failure(f"{home} has the data of a cluster", "Start it with --brokers N, or choose another --data DIR.")


def _security(options: SimpleNamespace) -> "LocalSecurity | None":
    """Return the security of `--secure`, whose files are beside the data directory."""
    if options.secure and options.config:
        advice = "`ottla security init` writes a file for --config with all that it needs."
        raise Failure("--secure is for a node without --config", advice, exit_code=2)
    if options.config:
        return None
    data = broker_settings.data_directory(options)
    if not options.secure and not os.path.exists(f"{data}-security"):
        return None  # without the import
    return late.secured.chosen(options, late.secured.directory_of(data))


async def _serve(
    config: BrokerConfig, security: "LocalSecurity | None", companions: "Companions | None" = None
) -> None:
    if not COMPILED:
        logger.warning("The record kernels are %s", NOT_COMPILED)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    first_signal_s = 0.0
    stopping: list[asyncio.Task[None]] = []

    def stop_on(signal_number: signal.Signals) -> None:
        nonlocal first_signal_s
        if stop.is_set() or stopping:
            if loop.time() - first_signal_s < ONE_REQUEST_S:
                return
            logger.warning("Stopping at once: received %s a second time", signal_number.name)
            os._exit(128 + signal_number)
        logger.info("Stopping: %s", signal_number.name)
        first_signal_s = loop.time()
        if companions is None:
            stop.set()
        else:
            stopping.append(loop.create_task(_stop_companions(companions, stop)))

    for signal_number in _STOPPING_SIGNALS:
        loop.add_signal_handler(signal_number, stop_on, signal_number)
    cluster_ends = False

    def stop_with_cluster() -> None:
        """The process that runs all nodes of the cluster closed this one's standard input."""
        nonlocal cluster_ends
        loop.remove_reader(sys.stdin.fileno())
        cluster_ends = True
        stop.set()

    if os.environ.get(SUPERVISED):
        loop.add_reader(sys.stdin.fileno(), stop_with_cluster)

    def ready(bootstrap: "Bootstrap") -> None:
        _announce(config, bootstrap, security)
        if companions is not None:
            companions.start(str(bootstrap), None if security is None else security.directory)

    await late.server.serve(config, ready, stop, leaves=lambda: not cluster_ends)
    if companions is not None:
        await companions.stop()
    for signal_number in _STOPPING_SIGNALS:  # a late signal must not change the exit code
        loop.remove_signal_handler(signal_number)
        signal.signal(signal_number, signal.SIG_IGN)
    logger.info("Stopped cleanly")


async def _stop_companions(companions: "Companions", stop: asyncio.Event) -> None:
    """Stop the companions, which need the broker to leave their groups, then the broker."""
    await companions.stop()
    stop.set()


def _announce(config: BrokerConfig, bootstrap: "Bootstrap", security: "LocalSecurity | None") -> None:
    """Print the address for scripts, then examples for people."""
    search_less()
    gc.enable()
    scheme = "http" if config.text(KEYSTORE) is None else "https"
    where = f"-b {bootstrap}" if security is None else security.announced(str(bootstrap))
    rows = {
        "data": ", ".join(map(os.path.abspath, config.directories)),
        "write": f"echo hello | ottla produce greetings --create {where}",
        "read": f"ottla tail greetings {where}",
        "topics": f"ottla topic list {where}",
        **({} if config.text(LISTENER) is None else {"metrics": f"{scheme}://{config.text(LISTENER)}/metrics"}),
        **({} if security is None else {"users": f"ottla security user add ann {where}"}),
        "stop": "Ctrl-C",
    }
    announce(str(bootstrap), str(bootstrap), "Ottla is up.", rows)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        logger.warning("uvloop is not installed: the broker runs on asyncio's own, slower loop")
        return None
    return uvloop.new_event_loop


def _raise_file_limit() -> None:
    """Raise the limit of open files, for segments and connections; the usual one of 1,024 is meant for `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 20 if hard == resource.RLIM_INFINITY else min(hard, 1 << 20)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            logger.warning("At most %d files can be open: %s", soft, error)


def _explain(config: BrokerConfig, error: OSError) -> Failure:
    if isinstance(error, ListenError):
        return cannot_listen(error)
    if error.filename:
        for directory in config.directories:
            if str(error.filename).startswith(directory):
                return unusable(directory, error)
    return Failure(str(error))
