"""`explain_cluster`: observes a cluster for some seconds and explains its troubles."""

from __future__ import annotations

from ottla.clients import admin as api
from ottla.tools.why.cluster_causes import explain
from ottla.tools.why.cluster_samples import observe_cluster
from ottla.tools.why.model import ClusterReport, Watch


async def explain_cluster(admin: api.AsyncAdmin, watch: Watch) -> ClusterReport:
    """Observe a cluster for `watch.seconds` and explain it. The cluster is not changed."""
    return explain(await observe_cluster(admin, watch))
