"""Options and commands of other tools (Kafka's own, kcat, rpk), and how they are spelled here.

Only errors use these tables.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Hint(NamedTuple):
    """The `options` of other tools, for commands that have the option or argument `needs`; "": for all."""

    options: tuple[str, ...]
    needs: str
    text: str


OPTIONS = (
    Hint(
        ("--brokers", "--broker", "--broker-list", "--bootstrap", "--bootstrap-servers", "--server", "--zookeeper"),
        "--bootstrap-server",
        "use -b HOST:PORT",
    ),
    Hint(("-o", "--output", "--format", "-j", "-J"), "--json", "use --json"),
    Hint(("--port", "-p", "--host", "--address"), "--listen", "use --listen HOST:PORT, or --listen PORT"),
    Hint(("-d", "--dir", "--data-dir", "--log-dir", "--log-dirs"), "--data", "use --data DIR"),
    Hint(("--nodes", "--replicas"), "--brokers", "use --brokers N"),
    Hint(("--override",), "-X", "use -X NAME=VALUE"),
    Hint(("--topic", "-t"), "TOPIC", "pass the topic name as an argument"),
    Hint(("--consumer-group",), "GROUP", "pass the group name as an argument"),
    Hint(("-C", "-P"), "TOPIC", "`ottla consume TOPIC` reads, `ottla produce TOPIC` writes"),
    Hint(("--from-beginning",), "", "`consume` starts at the beginning; -o names another start"),
    Hint(("--max-messages", "--num", "-c"), "--count", "use -n N"),
    Hint(("--timeout-ms",), "--exit-at-end", "-e ends where the topic ends"),
    Hint(
        (
            "--producer-property",
            "--consumer-property",
            "--command-property",
        ),
        "-X",
        "use -X NAME=VALUE",
    ),
    Hint(
        ("--property", "--reader-property"), "--key-delimiter", "-K TEXT separates key and value; --json reads objects"
    ),
    Hint(("--property", "--formatter-property"), "--format", "-f FORMAT or --json chooses what is printed"),
    Hint(("--producer.config", "--consumer.config"), "--command-config", "use --command-config FILE"),
)
COMMANDS = {
    "ottla start": "ottla up",
    "ottla serve": "ottla up",
    "ottla server": "ottla up",
    "ottla run": "ottla up",
    "ottla broker start": "ottla up",
    "ottla storage": "ottla format",
    "ottla list": "ottla topic list",
    "ottla create": "ottla topic create",
    "ottla describe": "ottla topic describe",
    "ottla delete": "ottla topic delete",
    "ottla reassign": "ottla topic reassign",
    "ottla topic produce": "ottla produce",
    "ottla topic consume": "ottla consume",
    "ottla read": "ottla consume",
    "ottla send": "ottla produce",
    "ottla write": "ottla produce",
    "ottla perf": "ottla bench",
    "ottla consumer-groups": "ottla group",
    "ottla lag": "ottla group lag",
    "ottla group seek": "ottla group reset",
    "ottla transactions": "ottla txn",
    "ottla status": "ottla cluster",
}


def of_option(option: str, has: Collection[str]) -> str | None:
    """Return how an option of another tool is spelled here; `has` are the options and arguments of the command."""
    return next((row.text for row in OPTIONS if option in row.options and row.needs in ("", *has)), None)
