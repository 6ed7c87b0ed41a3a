"""Show the busiest topics, hot partitions, and the lag of groups, refreshed until Ctrl-C.

Rates are the differences of two samples: log end offsets, and the sizes of the leaders' replicas. Only the admin API is
used, so it works with Ottla and with stock Kafka, and no record is read.

With --by, it shows the bytes that each user, client or topic sends, receives and stores, and the time that its requests
take. This reads the metrics endpoints of the brokers. $OTTLA_METRICS_TOKEN is their token, and the ssl settings of
the admin client are for their TLS.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from ottla.cli.commands import Choice, Command, Option, Options, require_positive
from ottla.cli.connect import connect, connection_options, connection_settings
from ottla.cli.output import Column, Output, number, output_options, size
from ottla.clients.options import SECURITY_OPTIONS, read_options
from ottla.common import units
from ottla.common.failure import Failure
from ottla.config import parse_address
from ottla.network.errors import SecuritySettingError
from ottla.network.tls_settings import tls_context
from ottla.tools.top import Frame, frame, read_sample
from ottla.tools.usage import Access, Place, endpoints, read_usage, usage_rows

_HTTPS: Final = "https://"
_LONGEST_S: Final = 3600.0
# The longest name in a frame of 80 columns.
_NAME: Final = 30
_KINDS = ("user", "client", "topic")
_PARAMETERS = [
    Option("--once", "print one frame, and end"),
    Option("--interval SECONDS", "time between samples; default: 2", type=float, default=2.0),
    Option("-n, --rows N", "rows of each list; default: 8", type=int, default=8),
    Option("--by KIND", "usage by user, client or topic", type=Choice(_KINDS)),
    Option("--metrics HOST:PORT,..", "metrics endpoints, https://HOST:PORT with TLS; default: from the brokers"),
    *output_options(),
    *connection_options(),
]
EXAMPLES = """
ottla top --once
ottla top --once --json | jq '.topics[0]'
ottla top --by user --once
"""


def run(options: Options) -> None:
    """Print a frame after each interval."""
    output = Output(options)
    require_positive(options, "--rows")
    if not 0.1 <= options.interval <= _LONGEST_S:  # also false for NaN
        limits = f"from 0.1 to {_LONGEST_S:,.0f} seconds"
        raise Failure(f"--interval is {options.interval:g}; it must be {limits}", exit_code=2)
    if options.by is not None:
        _run_usage(options, output)
        return
    if options.metrics is not None:
        raise Failure("--metrics needs --by user, client or topic", exit_code=2)
    admin = connect(options)
    before = read_sample(admin)
    while True:
        time.sleep(options.interval)
        now = read_sample(admin)
        shown = frame(before, now, options.rows)
        if output.json:
            output.object(asdict(shown))
        else:
            _show(output, shown, clear=not options.once and output.stream.isatty())
        output.stream.flush()
        if options.once:
            return
        before = now


def _run_usage(options: Options, output: Output) -> None:
    """Print a frame of usage after each interval."""
    addresses = endpoints(connect(options)) if options.metrics is None else _given(options.metrics)
    access = _access(options, addresses)
    before = read_usage(addresses, options.by, access)
    while True:
        time.sleep(options.interval)
        now = read_usage(addresses, options.by, access)
        found = usage_rows(before, now, options.by, options.rows)
        seconds = (now.at_ms - before.at_ms) / 1000
        if output.json:
            output.object({"at_ms": now.at_ms, "seconds": seconds, f"{options.by}s": found})
        else:
            clear = not options.once and output.stream.isatty()
            head = f"{units.moment(now.at_ms)}  usage by {options.by} in {seconds:.1f} s"
            output.line(("\x1b[H\x1b[2J" if clear else "") + output.style.bold(head))
            output.table(_USAGE[options.by], found)
        output.stream.flush()
        if options.once:
            return
        before = now


def _access(options: Options, addresses: Mapping[str, Place]) -> Access:
    """The token and the TLS of the admin client's settings. Raises Failure."""
    token = os.environ.get("OTTLA_METRICS_TOKEN")
    if not any(each.uses_tls for each in addresses.values()):
        return Access(token)
    given = {name: value for name, value in connection_settings(options).items() if name.startswith("ssl.")}
    try:
        return Access(token, tls_context(read_options(SECURITY_OPTIONS, given)))
    except SecuritySettingError as error:
        raise Failure(str(error), exit_code=2) from error


def _given(texts: str) -> dict[str, Place]:
    found = {}
    for text in texts.split(","):
        address = text.strip()
        try:
            found[address] = Place(*parse_address(address.removeprefix(_HTTPS)), address.startswith(_HTTPS))
        except ValueError as error:
            raise Failure(f"--metrics: {error}", exit_code=2) from error
    return found


def _show(output: Output, shown: Frame, *, clear: bool) -> None:
    records, data = units.rate(shown.records_per_s), units.size(round(shown.bytes_per_s))
    head = f"{units.moment(shown.at_ms)}  {records} records, {data}/s in {shown.seconds:.1f} s"
    output.line(("\x1b[H\x1b[2J" if clear else "") + output.style.bold(head))
    for columns, rows in ((_TOPICS, shown.topics), (_HOT, shown.partitions), (_GROUPS, shown.groups)):
        if rows:
            output.line()
            output.table(columns, rows)


def _named(key: str, heading: str) -> Column:
    """Return a column of names that fits 80 columns, also without a terminal."""
    return Column(key, heading, lambda name: _cut(name, _NAME))


def _cut(name: str, longest: int) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _per_second(key: str, heading: str, unit: str = "") -> Column:
    show = (lambda value: f"{units.size(round(value))}/s") if unit else (lambda value: f"{value:,.1f}")
    return Column(key, heading, show, right=True)


def _hot(share: Any) -> str | None:
    """Return the colour of a partition with more than half of its topic's records."""
    return "yellow" if share > 0.5 else None


_RATES = [_per_second("records_per_s", "RECORDS/S"), _per_second("bytes_per_s", "WRITTEN", "bytes"), size("size")]
_TOPICS = [_named("topic", "TOPIC"), *_RATES]
_HOT = [
    _named("topic", "HOT PARTITIONS"),
    number("partition", "NO"),
    number("leader"),
    *_RATES[:2],
    Column("share", "OF TOPIC", lambda share: f"{100 * share:.0f} %", right=True, colour=_hot),
]
_GROUPS = [_named("group", "GROUP"), number("lag"), _per_second("read_per_s", "READ/S")]

_SENT = [_per_second("in_per_s", "IN", "bytes"), _per_second("out_per_s", "OUT", "bytes")]
_BUSY = [
    Column("busy", "BUSY", lambda share: f"{100 * share:.1f} %", right=True),
    Column("throttled", "THROTTLED", lambda share: f"{100 * share:.1f} %", right=True, optional=True),
]
_USAGE = {
    "user": [_named("user", "USER"), *_SENT, *_BUSY],
    "client": [
        Column("user", "USER", lambda name: _cut(name, 20)),
        Column("client", "CLIENT", lambda name: _cut(name, 24)),
        *_SENT,
        *_BUSY,
    ],
    "topic": [_named("topic", "TOPIC"), *_SENT, size("stored")],
}

COMMAND = Command(run, _PARAMETERS, __doc__, EXAMPLES)
