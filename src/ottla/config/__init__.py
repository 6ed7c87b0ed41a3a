"""Every setting of brokers, topics and groups, by Kafka's names; which value holds, and where it comes from.

Read `settings.py` for what a row means, then `broker_rows.py`, `topic_rows.py`, `group_rows.py`; `values.py` and
`limits.py` for how a single value is read and limited, `checks.py` for rules about several; `broker.py` for the
configuration of one broker; `resolve.py` for dynamic settings and DescribeConfigs.
"""

from ottla.config.broker import BrokerConfig, ConfigError
from ottla.config.defaults import OTTLA_DEFAULTS
from ottla.config.listeners import Listener, parse_address
from ottla.config.properties import load_properties, parse_properties
from ottla.config.resolve import (
    TOPIC_SETTINGS_TOGETHER,
    ConfigSource,
    ConfigSynonym,
    Resolved,
    TopicResolver,
    check_broker,
    check_broker_together,
    check_group,
    check_group_together,
    check_names,
    check_topic,
    check_topic_together,
    resolve_broker,
    resolve_broker_default,
    resolve_group,
    resolve_topic,
)
from ottla.config.server_setting import ServerSetting
from ottla.config.settings import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, parse_value
from ottla.config.values import Value

__all__ = [
    "BROKER_SETTINGS",
    "GROUP_SETTINGS",
    "OTTLA_DEFAULTS",
    "TOPIC_SETTINGS",
    "TOPIC_SETTINGS_TOGETHER",
    "BrokerConfig",
    "ConfigError",
    "ConfigSource",
    "ConfigSynonym",
    "Listener",
    "Resolved",
    "ServerSetting",
    "TopicResolver",
    "Value",
    "check_broker",
    "check_broker_together",
    "check_group",
    "check_group_together",
    "check_names",
    "check_topic",
    "check_topic_together",
    "load_properties",
    "parse_address",
    "parse_properties",
    "parse_value",
    "resolve_broker",
    "resolve_broker_default",
    "resolve_group",
    "resolve_topic",
]
