"""The state of mirrors, which each broker reports in the settings of a mirror."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.clients.admin.core import Call, Outcome, Plan, Route
from ottla.clients.admin.model import ResourceType
from ottla.clients.errors import BrokerError, error_for
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

STATUS = "status"


def status(name: str) -> Plan[Outcome[int, dict[str, Any]]]:
    """Ask every broker for the state of a mirror on it."""

    def ask(_: Sequence[int]) -> DescribeConfigsRequest:
        return DescribeConfigsRequest([DescribeConfigsResource(int(ResourceType.MIRROR), name, [STATUS])])

    def read(response: Any, keys: Sequence[int]) -> Iterator[tuple[int, dict[str, Any] | BrokerError]]:
        [node_id], [result] = keys, response.results
        if result.error_code:
            yield node_id, error_for(result.error_code, result.error_message)
            return
        # A string has at most 32,767 bytes: a long text is in several settings of the same name.
        yield node_id, json.loads("".join(row.value for row in result.configs))

    outcome: Outcome[int, dict[str, Any]] = yield Call(Route.BROKERS, None, ask, read)
    return outcome
