"""`ottla cluster why`: explains what is wrong with a cluster."""

from __future__ import annotations

import asyncio

from ottla.cli.commands import Options
from ottla.cli.connect import client_settings
from ottla.cli.group_why import checked_watch, show_findings, show_unknown, watch_option
from ottla.cli.output import Output
from ottla.clients import admin as api
from ottla.common import units
from ottla.tools.why.cluster import explain_cluster
from ottla.tools.why.model import ClusterReport

PARAMETERS = [watch_option(3.0)]
EXAMPLES = """
ottla cluster why
ottla cluster why --watch 10
ottla cluster why --json | jq -r '.findings[] | .code'
"""


def why(options: Options) -> None:
    """Explain what is wrong with the cluster: each cause with the next step.

    It takes two samples, because one sample does not show whether a replica catches up. It changes nothing.
    """
    output, watch = Output(options), checked_watch(options)

    async def explained() -> ClusterReport:
        async with api.AsyncAdmin(client_settings(options)) as admin:
            return await explain_cluster(admin, watch)

    report = asyncio.run(explained())
    if output.json:
        output.object(report.as_dict())
        return
    parts = [units.plural(report.broker_count, "broker"), f"controller {report.controller}"]
    parts.append(f"observed for {report.watched_s:.0f} s")
    output.line(f"{output.style.bold(report.cluster_id)}  {', '.join(parts)}")
    output.line()
    show_findings(output, report.findings)
    if not report.findings and not report.unknown:
        output.line(output.style.green("No cause of trouble was found."))
    elif not report.findings:
        output.line(output.style.yellow("No cause of trouble was found, but not all parts could be read."))
    show_unknown(output, report.unknown)
