"""The settings of brokers, topics, groups and client metrics by Kafka's names, their effective values and sources.

Read `server_setting.py` first: the columns of a row. The rows are in `broker_rows.py`, `security_rows.py`,
`registry_rows.py`, `topic_rows.py`, `group_rows.py`, `client_metrics_rows.py` and `mirror_rows.py`. `values.py` and
`limits.py` parse and check a single value, `checks.py` has rules about several. `broker.py` is the configuration of one
broker, `resolve.py` adds dynamic settings and DescribeConfigs.
"""

from ottla.config.broker import INSECURE, BrokerConfig, ConfigError
from ottla.config.client_metrics import check_client_metrics
from ottla.config.defaults import OTTLA_DEFAULTS
from ottla.config.listeners import Listener, SecurityProtocol, parse_address
from ottla.config.properties import format_properties, load_properties, parse_properties
from ottla.config.resolve import (
    TOPIC_SETTINGS_TOGETHER,
    ConfigSource,
    Resolved,
    TopicResolver,
    check_broker,
    check_broker_together,
    check_cordoned,
    check_group,
    check_group_together,
    check_mirror,
    check_names,
    check_topic,
    check_topic_together,
    resolve_broker,
    resolve_broker_default,
    resolve_group,
    resolve_mirror,
    resolve_topic,
)
from ottla.config.server_setting import ServerSetting
from ottla.config.settings import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    MIRROR_SETTINGS,
    TOPIC_SETTINGS,
    parse_value,
)

__all__ = [
    "BROKER_SETTINGS",
    "CLIENT_METRICS_SETTINGS",
    "GROUP_SETTINGS",
    "INSECURE",
    "MIRROR_SETTINGS",
    "OTTLA_DEFAULTS",
    "TOPIC_SETTINGS",
    "TOPIC_SETTINGS_TOGETHER",
    "BrokerConfig",
    "ConfigError",
    "ConfigSource",
    "Listener",
    "Resolved",
    "SecurityProtocol",
    "ServerSetting",
    "TopicResolver",
    "check_broker",
    "check_broker_together",
    "check_client_metrics",
    "check_cordoned",
    "check_group",
    "check_group_together",
    "check_mirror",
    "check_names",
    "check_topic",
    "check_topic_together",
    "format_properties",
    "load_properties",
    "parse_address",
    "parse_properties",
    "parse_value",
    "resolve_broker",
    "resolve_broker_default",
    "resolve_group",
    "resolve_mirror",
    "resolve_topic",
]
