"""Check whether a cluster is ready for production: a list, each row with the command that repairs it.

It reads the settings, topics, disks and versions of a cluster, Ottla or stock Kafka, and changes nothing.

Exit code 1: a check is critical, or it is unknown whether the cluster is secure
or allows unclean elections, because the user may not read settings or a broker
does not answer.
"""

from __future__ import annotations

import asyncio

from ottla.cli.commands import Command, Options
from ottla.cli.connect import client_settings, connection_options
from ottla.cli.group_why import show_findings, show_unknown
from ottla.cli.output import Output, output_options
from ottla.clients import admin as api
from ottla.common import units
from ottla.tools.readiness import Facts, checks, is_failed, read_facts, unknown_checks
from ottla.tools.why.model import by_severity, worst

EXAMPLES = """
ottla check || true
ottla check --json | jq -r '.checks[] | .code' || true
"""


def run(options: Options) -> int:
    """Print the result of each check."""
    output = Output(options)

    async def read() -> Facts:
        async with api.AsyncAdmin(client_settings(options)) as admin:
            return await read_facts(admin)

    facts = asyncio.run(read())
    found = by_severity(checks(facts))
    severity = worst(found)
    undecided = unknown_checks(facts).keys()
    if output.json:
        rows = [vars(each) for each in found]
        cluster = facts.sample.cluster.cluster_id
        report = {"cluster_id": cluster, "severity": severity, "checks": rows, "unknown_checks": sorted(undecided)}
        output.object({**report, "unknown": facts.unknown})
    else:
        show_findings(output, found)
        serious = sum(each.severity == "critical" for each in found)
        output.line()
        unknown = f", {len(undecided)} unknown" if undecided else ""
        output.line(f"{units.plural(len(found), 'row')}, {serious} critical{unknown}")
        show_unknown(output, facts.unknown)
    return 1 if is_failed(facts) else 0


COMMAND = Command(run, [*output_options(), *connection_options()], __doc__, EXAMPLES)
