"""Runs the verification of a plugin in this process, with the variables of the configuration resolved here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.common.failure import Failure
from ottla.connect import plugins
from ottla.connect.api import Finding
from ottla.connect.errors import ConnectError
from ottla.connect.worker.providers import Providers, Secrets


def verify(config: Mapping[str, str], clients: Mapping[str, object]) -> Iterator[Finding]:
    """Yield progress and differences. Raises Failure; no message shows values of variables."""
    secrets = Secrets()
    try:
        resolved = Providers().resolve(config, secrets)
        for each in plugins.connector_class(config["connector.class"]).verify(resolved, clients):
            yield each._replace(text=secrets.hide(each.text))
    except ConnectError as error:
        raise Failure(secrets.hide(str(error))) from error
