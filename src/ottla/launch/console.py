"""The streams of a process that runs nodes: log lines on standard error, the announcement on standard output."""

import logging
import os
import sys
from collections.abc import Mapping

from ottla.common.log_lines import LimitedHandler, LineFormatter
from ottla.common.style import Style

# Describes record kernels that are not compiled.
NOT_COMPILED = "plain Python, which is slower: the install found no C compiler, or OTTLA_KERNELS asks for it"

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
_FORMAT = "OTTLA_LOG_FORMAT"


def start_logging(level: str, log_format: str | None = None) -> None:
    """Write all log lines to standard error, with a limited rate. Processes that this one starts have its format."""
    if log_format is not None:
        os.environ[_FORMAT] = log_format
    handler = LimitedHandler(sys.stderr)
    handler.setFormatter(_formatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("ottla").handlers.clear()  # the commands' handler would print warnings a second time


def _formatter() -> logging.Formatter:
    if os.environ.get(_FORMAT) != "json":
        return LineFormatter(Style.of(sys.stderr))
    from ottla.common.json_lines import JsonFormatter  # noqa: PLC0415 - most processes need no json

    return JsonFormatter()


def discard_standard_output() -> None:
    """Redirect standard output to /dev/null, because the interpreter flushes it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def announce(bootstrap: str, first: str, up: str, rows: Mapping[str, str]) -> None:
    """Print the addresses for scripts, then for people that nodes are `up` and what to do with the `first`."""
    style = Style.of(sys.stdout)
    lines = [
        f"bootstrap={bootstrap}",
        "",
        f"  {style.green(up)} Any Kafka client can connect to {style.bold(first)}",
        "",
        *(f"  {style.dim(name)}{' ' * (9 - len(name))}{text}" for name, text in rows.items()),
        "",
    ]
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        discard_standard_output()  # the reader ended after the first line
