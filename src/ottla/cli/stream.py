"""Run, explain and observe pipelines from topics to topics, on Spark (docs/streams.md)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ottla.cli import late, stream_get, stream_reset, stream_status
from ottla.cli.commands import Argument, Group, Option, Options
from ottla.cli.connect import connection_options, registry_settings, spark_settings
from ottla.cli.output import Output, output_options
from ottla.cli.terminal import log_warnings_only
from ottla.common import units
from ottla.common.failure import Failure
from ottla.launch.console import start_logging
from ottla.streams.description import text
from ottla.streams.drawing import mermaid, svg
from ottla.streams.errors import Interrupted, PipelineFailed, StreamsError, place_of
from ottla.streams.event_time import milliseconds
from ottla.streams.metrics_address import TOKEN, metrics_address
from ottla.streams.registries import URL, Registry, first
from ottla.streams.registries import registry as registry_of
from ottla.streams.settings import Settings
from ottla.streams.status import Status

COMMAND = Group(
    __doc__,
    """
    ottla stream explain wordcount.py     topics, state, problems; no broker
    ottla stream run wordcount.py         until Ctrl-C; --master URL: elsewhere
    ottla stream run wordcount.py --once  the records of now, then end
    ottla stream list                     all pipelines of the cluster
    ottla stream why wordcount            why it makes no progress, and what to do
    """,
)

INTERRUPTED = 130
NEXT_STEP = (
    "`pip install 'ottla[spark,java]'` installs Spark and a Java; without `java` it uses the Java of this machine."
)


def _file() -> Argument:
    return Argument("file", "FILE", help="a Python file with pipelines")


def _names() -> Argument:
    return Argument("pipelines", "PIPELINE", nargs=-1, help="names of pipelines; default: all of the file")


@COMMAND.verb(
    "run",
    _file(),
    _names(),
    Option("--master URL", "Spark's master; default: $MASTER, or all cores of this machine"),
    Option(
        "--checkpoints DIRECTORY",
        "where each pipeline has its state, on a disk that all nodes reach; default: ./checkpoints",
        default="checkpoints",
    ),
    Option("--once", "end when the records of now are processed"),
    Option("--latency DURATION", "how long a record may wait for its micro-batch; default: as the pipelines say"),
    Option("--registry URL,..", "the schema registry of pipelines without one; default: as for `ottla schema`"),
    Option(
        "--metrics HOST:PORT", f"serve metrics for Prometheus; other machines need ${TOKEN}; HTTPS: docs/metrics.md"
    ),
    *connection_options(),
    examples="""
    ottla stream run wordcount.py
    ottla stream run shop.py invoices --once
    ottla stream run shop.py --latency "5 seconds"
    ottla stream run shop.py --metrics 127.0.0.1:9405
    ottla stream run shop.py --master spark://HOST:7077 --checkpoints /shared
    """,
)
def _run(options: Options) -> int:
    """Run the pipelines of a file until Ctrl-C or SIGTERM. Both end after the running batch; invalid
    records and wrong programs end it at once, an unavailable broker does not.
    """
    client = spark_settings(options)
    start_logging("info")
    log_warnings_only()
    logging.getLogger("py4j").setLevel(logging.WARNING)
    file = Path(options.file)
    ended: Sequence[Status]
    code = 0
    with _explained(file):
        latency_ms = None if options.latency is None else milliseconds("--latency", options.latency)
        registry = _registry(options)
        metrics = None if options.metrics is None else metrics_address("--metrics", options.metrics)
        settings = Settings(
            client, options.checkpoints, options.once, latency_ms=latency_ms, registry=registry, metrics=metrics
        )
        try:
            ended = late.run_file(file, options.pipelines, settings, options.master)
        except Interrupted as interrupted:
            ended, code = interrupted.args, INTERRUPTED
    for each in ended:
        print(_summary(each))
    return code


def _registry(options: Options) -> Registry | None:
    """Return the registry of the command line, the file or the profile; None if they have no setting of one."""
    given = {name: str(value) for name, value in registry_settings(options).items()}
    if options.registry:
        given[URL] = options.registry
    if not given:
        return None
    return registry_of("--registry", {**first(None), **given})


def _summary(status: Status) -> str:
    """Return what a query has done, in a line."""
    batches = units.plural(status.batches, "micro-batch", "micro-batches")
    busy = units.duration(status.busy_ms)
    rate = f", {units.rate(1000 * status.records / status.busy_ms)} records/s" if status.busy_ms else ""
    written = [f"{units.plural(rows, 'row')} to {topic}" for topic, rows in status.outputs.items()]
    parts = [f"{status.run.query}: {units.plural(status.records, 'record')} in {batches}, {busy}{rate}"]
    parts += ["wrote " + ", ".join(written)] if written else []
    parts += [f"{number:,} invalid of {name}" for name, number in status.invalid.items() if number]
    parts += [f"{status.late:,} late"] if status.late else []
    parts += [f"{status.lag:,} behind"] if status.lag else []
    return "; ".join(parts)


@COMMAND.verb(
    "explain",
    _file(),
    _names(),
    Option("--mermaid", "print a drawing for Mermaid"),
    Option("--svg", "print a drawing as SVG, for a browser"),
    *output_options(),
    examples="""
    ottla stream explain wordcount.py
    ottla stream explain shop.py --mermaid
    ottla stream explain shop.py --svg > shop.svg
    """,
)
def _explain(options: Options) -> int:
    """Show topics, formats, operators with state and problems of pipelines. Needs no broker."""
    output = Output(options)
    output.note("Starting Spark, which takes some seconds")
    file = Path(options.file)
    with _explained(file):
        found = late.explain_file(file, options.pipelines)
    if options.mermaid or options.svg:
        output.line((svg if options.svg else mermaid)(found))
    elif output.json:
        for each in found:
            output.object(each.as_json())
    else:
        for each in found:
            output.line(text(each))
    return 1 if any(each.problems for each in found) else 0


@COMMAND.verb(
    "prepare",
    examples="""
    ottla stream prepare
    """,
)
def _prepare(_: Options) -> None:
    """Store Spark's Java classes for this user (180 MB), so that later runs start faster. Takes half a minute;
    repeat it with another Java or pyspark.
    """
    with _explained():
        print(late.prepare())


_SHARED = (*output_options(), *connection_options("consumer"))
COMMAND.verb(
    "list",
    stream_status.names_argument(),
    *stream_status.LIST_OPTIONS,
    *_SHARED,
    examples=stream_status.LIST_EXAMPLES,
    aliases=("ls",),
)(stream_status.show_list)
COMMAND.verb(
    "describe",
    stream_status.names_argument(),
    *_SHARED,
    examples=stream_status.DESCRIBE_EXAMPLES,
    summary="show the last micro-batch, inputs, state and outputs",
)(stream_status.show_description)
COMMAND.verb(
    "why",
    stream_status.name_argument(),
    *stream_status.WHY_OPTIONS,
    *_SHARED,
    examples=stream_status.WHY_EXAMPLES,
    summary="say in words why a pipeline makes no progress",
)(stream_status.explain_progress)


COMMAND.verb("reset", *stream_reset.PARAMETERS, *_SHARED, examples=stream_reset.EXAMPLES)(stream_reset.reset)


@COMMAND.verb("get", *stream_get.PARAMETERS, examples=stream_get.EXAMPLES)
def _get(options: Options) -> int:
    """Show the latest value of a key in a compacted topic. The exit code is 1 if there is no such key."""
    with _explained():
        return stream_get.get(options)


@contextmanager
def _explained(file: Path | None = None) -> Iterator[None]:
    """Convert errors of a program, which is in `file`, to lines of the command."""
    try:
        yield
    except StreamsError as error:
        found = None if file is None or len(error.problems) > 1 else place_of(file, error)
        first, *others = error.problems
        raise Failure(first if found is None else f"{found[0]}: {first}", *others) from error
    except PipelineFailed as error:
        raise Failure(str(error)) from error
    except ImportError as error:
        if error.name in ("pyspark", "pyarrow", "pandas") or "ottla[spark]" in str(error):
            raise Failure("Spark is not installed", NEXT_STEP) from error
        _raise_failure(file, error)
        raise
    except Exception as error:
        _raise_failure(file, error)
        raise


def _raise_failure(file: Path | None, error: Exception) -> None:
    """Raise Failure with the part of the traceback that begins in the program, if the program raised an exception."""
    found = None if file is None else place_of(file, error)
    if found is not None:
        place, trace = found
        raise Failure(f"{place}: {type(error).__name__}: {error}", *trace) from error
