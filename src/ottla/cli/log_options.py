"""The options of servers about their log lines."""

from __future__ import annotations

from ottla.cli.commands import Choice, Option
from ottla.launch.console import LOG_FORMATS, LOG_LEVELS


def log_options() -> list[Option]:
    """Return the options --log-level and --log-format."""
    return [
        Option(
            "--log-level LEVEL",
            "the least level of log lines on standard error: debug, info, warning or error; default: info",
            type=Choice(LOG_LEVELS),
            default="info",
        ),
        Option(
            "--log-format FORMAT",
            "text, or json for one JSON object a line; default: text, or OTTLA_LOG_FORMAT",
            type=Choice(LOG_FORMATS),
        ),
    ]
