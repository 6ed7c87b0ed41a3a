from ottla.broker import oauthbearer as oauthbearer
from ottla.broker.contracts.contracts import create_contracts as create_contracts
from ottla.broker.delegation_tokens import DelegationTokens as DelegationTokens
from ottla.broker.metrics.node import NodeMetrics as NodeMetrics
from ottla.broker.metrics.node import create_meter as create_meter
from ottla.broker.telemetry.receiver import ClientTelemetry as ClientTelemetry
