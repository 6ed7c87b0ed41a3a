"""`ottla connect run` and `serve`: workers in the foreground; `verify`: compare a system with its topics."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Sequence
from typing import Any

from ottla.cli.commands import Argument, Option, Options, section
from ottla.cli.connect import client_settings, cluster_options, connection_settings
from ottla.cli.connectors_client import Api, path_of
from ottla.cli.log_options import log_options
from ottla.cli.output import Output, one_line
from ottla.common.allocator import share_one_arena
from ottla.common.failure import Failure
from ottla.common.garbage import search_less
from ottla.common.style import Style
from ottla.launch.console import discard_standard_output, start_logging
from ottla.tools.connector_files import is_worker_file, read_connector
from ottla.tools.values import name_and_value, read_properties

logger = logging.getLogger("ottla.connect")

ANNOUNCEMENT = "connect="
_INSTALL = "`pip install 'ottla[connect]'` installs it."


def _worker_options(config: str) -> tuple[Option, ...]:
    return section(
        "Worker",
        Option("--listen HOST:PORT", "the address of the REST API; default: 127.0.0.1:8083. Port 0 is a free one"),
        Option("--config FILE", config),
        Option("-X NAME=VALUE", "a setting of the worker, by Kafka Connect's name; may be repeated",
               name="overrides", multiple=True),
        Option("--insecure", "let other machines connect without authentication"),
        *log_options(),
    )  # fmt: skip


RUN_PARAMETERS = (
    Argument(
        "files", "FILE", nargs=-1, required=True, help="connectors (properties, JSON, TOML), or worker properties"
    ),
    *_worker_options("a properties file of the worker (connect-standalone.properties)"),
    *cluster_options(),
)
RUN_EXAMPLES = """
    ottla connect run source.properties
    ottla connect run worker.properties source.json sink.toml
    ottla connect run orders.toml -b broker:9092 --listen 127.0.0.1:0
    """
SERVE_PARAMETERS = (
    *section("Worker", Option("--group NAME", "the group of workers (group.id); default: connect-cluster")),
    *_worker_options("a properties file of the worker (connect-distributed.properties)"),
    *cluster_options(),
)
SERVE_EXAMPLES = """
    ottla connect serve
    ottla connect serve -b broker:9092 --group etl --listen 9083
    ottla connect serve --config connect-distributed.properties
    """
VERIFY_PARAMETERS = cluster_options()
VERIFY_EXAMPLES = """
    ottla connect verify orders
    ottla connect verify orders -b broker:9092 --json
    """


def run(options: Options) -> None:
    """Run connectors of files in one worker, until Ctrl-C or SIGTERM. Its first line is `connect=URL`.

    Offsets are in a topic: the next run goes on where this one has committed.
    """
    files = [read_connector(path) for path in options.files]
    settings: dict[str, str] = {}
    for each in files:
        if is_worker_file(each):
            settings |= each
    connectors = [each for each in files if not is_worker_file(each)]
    names = [each["name"] for each in connectors]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Failure(f"two files have a connector of the name {twice[0]}", exit_code=2)
    module = _module("ottla.connect.standalone")
    given = _settings(options, settings)
    start_logging(options.log_level, options.log_format)

    async def main() -> None:
        with _module("ottla.web.server").stop_signals() as stop:
            await module.run(given, connectors, stop, lambda urls: _announce(urls, names), insecure=options.insecure)

    _run(main)


def serve(options: Options) -> None:
    """Run a worker of a group, until Ctrl-C or SIGTERM. Its first line is `connect=URL`.

    Workers with one group divide the connectors and their tasks, and take over the work of a lost worker.
    """
    module = _module("ottla.connect.distributed")
    given = _settings(options, {})
    start_logging(options.log_level, options.log_format)
    if options.group is not None:
        given["group.id"] = options.group

    async def main() -> None:
        with _module("ottla.web.server").stop_signals() as stop:
            await module.run(given, stop, lambda urls: _announce(urls, []), insecure=options.insecure)

    _run(main)


def _run(main: Any) -> None:
    share_one_arena()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with asyncio.Runner(loop_factory=importlib.import_module("uvloop").new_event_loop) as runner:
        runner.run(main())
    logger.info("Stopped cleanly")


def _module(name: str) -> Any:
    """Import a module. Raises Failure without the extra of Connect."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("ottla"):
            raise
        raise Failure(f"Connect needs {error.name}", _INSTALL) from error


def _settings(options: Options, of_files: dict[str, str]) -> dict[str, str]:
    """Return the settings of the connection, the files, and -X, which overrides the others."""
    given = dict(of_files)
    if options.config:
        given |= read_properties(options.config)
    if "bootstrap.servers" not in given or options.bootstrap_server is not None:
        clients = connection_settings(options)
        given |= {name: str(value) for name, value in clients.items() if name != "client.id"}
    if options.listen:
        given["listeners"] = options.listen if "://" in options.listen else f"http://{_with_host(options.listen)}"
    given.update(name_and_value(word, "-X") for word in options.overrides)
    return given


def _with_host(text: str) -> str:
    return f"127.0.0.1:{text.removeprefix(':')}" if text.removeprefix(":").isdecimal() else text


def _announce(urls: Sequence[str], names: Sequence[str]) -> None:
    search_less()
    style = Style.of(sys.stdout)
    lines = [f"{ANNOUNCEMENT}{','.join(urls)}", "", f"  {style.green('Connect is up.')} {style.bold(urls[0])}"]
    lines += [f"  {style.dim('connector')}  {name}" for name in names]
    lines += [f"  {style.dim('look')}       ottla connect list -C {urls[0]}", ""]
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        discard_standard_output()


def verify(options: Options) -> int:
    """Compare a connector's system with its topics, if its plugin can. The exit code is 1 if there are differences."""
    output = Output(options)
    config = Api.of(options).get(path_of(options.name, "config"))
    differences = 0
    for finding in _module("ottla.connect.verification").verify(config, client_settings(options, "consumer")):
        differences += finding.is_difference
        if output.json:
            output.object({"text": finding.text, "difference": finding.is_difference})
        elif finding.is_difference:
            output.line(output.style.red(one_line(finding.text)))
        else:
            output.note(finding.text)
    if not output.json:
        output.note(f"{differences} differences" if differences else "There are no differences")
    return 1 if differences else 0
