"""Show and change the settings of topics, brokers, groups and more, with the source of each value.

KIND is topic, broker, group, broker-logger or client-metrics, or one whose settings are quotas: user, client or ip. The
plurals of Kafka's tool are accepted. NAME is the name of a topic or group, the node id of a broker, or `default` for
the settings that all brokers (users, clients, addresses) share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from ottla.cli import config_quota
from ottla.cli.commands import Argument, Group, Option, Options, dry_run_option
from ottla.cli.connect import connect, connection_options
from ottla.cli.names import all_topics, check_broker, check_exists
from ottla.cli.output import Column, Output, output_options
from ottla.clients import admin as api
from ottla.common.failure import Failure
from ottla.tools import values
from ottla.tools.admin.configs import Changes, default_of, described_after, was_set
from ottla.tools.file_modes import shown_to_others
from ottla.tools.suggestions import did_you_mean

COMMAND = Group(
    __doc__,
    """
    ottla config list topic orders
    ottla config get topic orders retention.ms
    ottla config set topic orders retention.ms=7d
    ottla config unset topic orders retention.ms
    ottla config list broker 1 --all
    """,
    shared=[*output_options(), *connection_options()],
)

KINDS = ("topic", "broker", "group", "broker-logger", "client-metrics")
_ALL_BROKERS = ("default", "")
_SOURCES = {
    "TOPIC": "topic",
    "BROKER": "this broker",
    "CLUSTER_DEFAULT": "all brokers",
    "BROKER_FILE": "broker's file",
    "DEFAULT": "default",
    "BROKER_LOGGER": "logger",
    "CLIENT_METRICS": "client metrics",
    "GROUP": "group",
}
_COLUMNS = [
    Column("setting", narrow=True),
    Column("value", narrow=True, cell=lambda row: _value_text(row)),
    Column("source", colour=lambda source: "dim" if source == "default" else None),
]


def _kinds(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in (*KINDS, *config_quota.KINDS) if kind.startswith(incomplete)]


def _resource(*, name: bool = True) -> list[click.Parameter]:
    return [
        Argument("kind", "KIND", shell_complete=_kinds, help="topic, broker, group, user, client, ip, ..."),
        Argument("name", "NAME", required=name, help="its name or node id; `default` for all brokers"),
    ]


def _settings() -> Argument:
    return Argument("settings", "SETTING", nargs=-1, required=True, help="names of settings")


# -- reading -----------------------------------------------------------------------------------------------------


@COMMAND.verb(
    "list",
    *_resource(name=False),
    Option("-a, --all", "also settings with default values"),
    examples="""
    ottla config list topic                 the settings of all topics
    ottla config list topic orders          the settings of one topic
    ottla config list topic orders --all    with the defaults
    ottla config list broker default
    """,
    aliases=("ls",),
)
def _list(options: Options) -> None:
    """List settings with their sources."""
    if quota := config_quota.kind_of(options.kind):
        config_quota.show(options, quota)
        return
    admin = connect(options)
    if options.name is None:
        resources, columns, place = _resources(admin, _type(options.kind)), [Column("name", narrow=True)], ""
        described = admin.describe_configs(resources, synonyms=True) if resources else {}
    else:
        resource = _resource_of(admin, options)
        resources, columns, place = [resource], [], f" for {resource}"
        described = {resource: admin.describe_config(resource, synonyms=True)}
    rows = [
        _row(resource, entry)
        for resource in resources
        for entry in described[resource].values()
        if options.all or was_set(entry, resource)
    ]
    empty = f"Nothing was set{place}: --all shows the defaults."
    Output(options).table([*columns, *_COLUMNS], rows, empty=empty)


def _resources(admin: api.Admin, kind: api.ResourceType) -> list[api.ConfigResource]:
    """Return the resources of a kind that may have settings."""
    if kind is api.ResourceType.TOPIC:
        return [api.ConfigResource.topic(topic.name) for topic in admin.list_topics()]
    if kind in (api.ResourceType.BROKER, api.ResourceType.BROKER_LOGGER):
        return [api.ConfigResource(kind, str(broker.node_id)) for broker in admin.describe_cluster().brokers]
    return admin.list_config_resources([kind])


@COMMAND.verb(
    "get",
    *_resource(),
    _settings(),
    examples="""
    ottla config get topic orders retention.ms
    ottla config get broker 1 log.dirs num.partitions
    """,
    summary="print values of settings",
)
def _get(options: Options) -> None:
    """Print values of settings: for one setting only the value, for several NAME=VALUE lines."""
    if quota := config_quota.kind_of(options.kind):
        config_quota.show(options, quota)
        return
    output, admin = Output(options), connect(options)
    resource = _resource_of(admin, options)
    entries = admin.describe_config(resource, synonyms=True)
    _check_known(admin, options.settings, entries, resource)
    for name in options.settings:
        if name not in entries:
            raise Failure(f"{name} is not set for {resource}")
        value = entries[name].value or ""
        output.done(value if len(options.settings) == 1 else f"{name}={value}", _row(resource, entries[name]))


def _row(resource: api.ConfigResource, entry: api.ConfigEntry) -> dict[str, Any]:
    return {
        "kind": _kind_name(resource),
        "name": resource.name or "default",
        "setting": entry.name,
        "value": entry.value,
        "source": _SOURCES.get(entry.source.name, entry.source.name.lower().replace("_", " ")),
        "type": entry.type.name.lower(),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "default": default_of(entry),
    }


def _value_text(row: Mapping[str, Any]) -> str:
    if row["sensitive"]:
        return "-" if row["source"] == "default" else "(hidden)"
    return values.explained(row["setting"], row["value"])


# -- changing ----------------------------------------------------------------------------------------------------


@COMMAND.verb(
    "set",
    *_resource(),
    Argument("changes", "SETTING=VALUE", nargs=-1, required=True, help="settings with new values, such as 7d or 1GiB"),
    dry_run_option(),
    examples="""
    ottla config set topic orders retention.ms=7d max.message.bytes=4MiB
    ottla config set topic orders cleanup.policy+=compact
    ottla config set broker default log.cleaner.threads=2 --dry-run
    ottla config set group billing consumer.session.timeout.ms=50s
    """,
)
def _set(options: Options) -> None:
    """Change settings. += adds an item to a list, -= removes it."""
    changes: dict[str, object] = {}
    if problem := shown_to_others("config set", options.changes, "`kafka-configs.sh --add-config-file FILE`"):
        Output(options).warn(problem)
    for word in options.changes:
        name, _, value = word.partition("=")
        if name.endswith(("+", "-")) and "=" in word:
            changes[name[:-1].strip()] = (api.Append if name.endswith("+") else api.Subtract)(value)
        else:
            changes.update(values.assignments([word]))
    _change(options, changes)


@COMMAND.verb(
    "unset",
    *_resource(),
    _settings(),
    dry_run_option(),
    examples="ottla config unset topic orders retention.ms",
)
def _unset(options: Options) -> None:
    """Reset settings to their defaults."""
    _change(options, dict.fromkeys(options.settings))


def _change(options: Options, changes: Mapping[str, object]) -> None:
    if quota := config_quota.kind_of(options.kind):
        config_quota.change(options, quota, changes)
        return
    admin = connect(options)
    change(admin, Output(options), {_resource_of(admin, options): changes}, dry_run=options.dry_run)


def change(admin: api.Admin, output: Output, changes: Changes, *, dry_run: bool) -> None:
    """Make the changes, and print the old and new value of each. Raises Failure for an unknown setting."""
    if not changes:
        return
    before = admin.describe_configs(changes)
    for resource, wanted in changes.items():
        _check_known(admin, wanted, before[resource], resource)
    admin.alter_configs(changes, validate_only=dry_run)
    after = before if dry_run else described_after(admin, changes, before)
    for resource, wanted in changes.items():
        for name, value in wanted.items():
            old, new = before[resource].get(name), after[resource].get(name)
            row = {
                "kind": _kind_name(resource),
                "name": resource.name or "default",
                "setting": name,
                "before": old.value if old else None,
                "value": _requested(value) if dry_run else new.value if new else None,
                "changed": not dry_run,
            }
            output.changed(_changed_text(row, value, dry_run=dry_run), row, made=not dry_run)


def _changed_text(row: Mapping[str, Any], value: object, *, dry_run: bool) -> str:
    name, old = row["setting"], values.explained(row["setting"], row["before"])
    new = values.explained(name, row["value"])
    if dry_run and value is not None and new == old:
        return f"{row['name']}: {name} would be {new}, as before"
    if dry_run:
        return f"{row['name']}: {name} would change from {old} to {'the default' if value is None else new}"
    default = ", the default" if value is None else ""
    return f"{row['name']}: {name} is {new}{default}" + (", as before" if new == old else f", was {old}")


def _requested(value: object) -> str | None:
    return value if value is None else str(getattr(value, "value", value))


def _check_known(
    admin: api.Admin, names: Iterable[str], entries: Mapping[str, api.ConfigEntry], resource: api.ConfigResource
) -> None:
    """Raise Failure for a setting that does not exist for the resource, as far as the brokers report its settings."""
    unknown = [name for name in names if name not in entries]
    if not unknown or (not entries and resource.type is not api.ResourceType.BROKER):
        return
    known = set(entries)
    if resource.type is api.ResourceType.BROKER and not resource.name:
        # For the settings that all brokers share, Kafka reports only settings that were set.
        node_id = admin.describe_cluster().brokers[0].node_id
        known |= set(admin.describe_config(api.ConfigResource.broker(node_id)))
    for name in unknown:
        if name not in known:
            listing = f"`ottla config list {_kind_name(resource)} {resource.name or 'default'} --all` shows all."
            raise Failure(f"{resource} has no setting {name!r}", *did_you_mean(name, known, listing))


# -- resources ---------------------------------------------------------------------------------------------------


def _type(word: str) -> api.ResourceType:
    single = word.lower().replace("_", "-")
    single = single if single in KINDS else single.removesuffix("s")
    if single in {"consumer-group", "share-group"}:
        return api.ResourceType.GROUP
    if single not in KINDS:
        kinds = (*KINDS, *config_quota.KINDS)
        advice = did_you_mean(word, kinds, f"It may be {', '.join(kinds)}.")
        raise Failure(f"unknown kind {word!r}", *advice, exit_code=2)
    return api.ResourceType[single.upper().replace("-", "_")]


def _kind_name(resource: api.ConfigResource) -> str:
    return resource.type.name.lower().replace("_", "-")


def _resource_of(admin: api.Admin, options: Options) -> api.ConfigResource:
    kind, name = _type(options.kind), options.name
    if kind in (api.ResourceType.BROKER, api.ResourceType.BROKER_LOGGER):
        if kind is api.ResourceType.BROKER and name in _ALL_BROKERS:
            return api.ConfigResource(kind, "")
        check_broker(admin, name, ", and `default` for all brokers" if kind is api.ResourceType.BROKER else "")
    elif kind is api.ResourceType.TOPIC:
        check_exists(name, all_topics(admin), "topic")
    return api.ConfigResource(kind, name)
