"""Whether the cluster is ready for production: each check with the command that repairs it."""

from __future__ import annotations

from ottla.clients.admin import AsyncAdmin
from ottla.common import units
from ottla.console.calls import Call
from ottla.console.pages.why import finding_table, observed, unknown_table
from ottla.console.view import Page
from ottla.tools.readiness import Facts, checks, is_failed, read_facts, unknown_checks
from ottla.tools.why.model import by_severity, worst


def check(call: Call) -> Page:
    """Read settings, topics, disks and versions, and check them."""

    async def read() -> Facts:
        async with AsyncAdmin(call.session.admin_settings()) as admin:
            return await read_facts(admin)

    facts = observed(read())
    found = by_severity(checks(facts))
    severity = worst(found)
    undecided = sorted(unknown_checks(facts))
    serious = sum(each.severity == "critical" for each in found)
    warnings = sum(each.severity == "warning" for each in found)
    lead = f"{units.plural(len(found), 'row')}: {serious} critical, {units.plural(warnings, 'warning')}."
    tone = "critical" if is_failed(facts) else "warning" if severity == "warning" else "ok"
    return Page(
        "Is the cluster ready for production?",
        {
            "cluster_id": facts.sample.cluster.cluster_id,
            "severity": severity,
            "checks": [vars(each) for each in found],
            "unknown_checks": undecided,
            "unknown": facts.unknown,
        },
        [finding_table(found, "Checks"), *unknown_table(facts.unknown)],
        command=call.command("check"),
        crumbs=[("Overview", "/")],
        lead=lead,
        tone=tone,
        section="overview",
    )
