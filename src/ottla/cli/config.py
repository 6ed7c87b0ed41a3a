"""Show and change settings of topics, brokers, groups and more, with where each value comes from.

KIND is topic, broker, group, broker-logger or client-metrics, or user, client, ip, whose settings are quotas; Kafka's
plurals are understood. NAME is a topic's or group's name, a broker's node id, or `default` for what all brokers (users,
clients, addresses) share.
"""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ottla.cli import config_quota, values
from ottla.cli.commands import Argument, Command, Group, Option, Options
from ottla.cli.connect import connection_options, open_admin
from ottla.cli.names import missing
from ottla.cli.output import Column, Output, output_options
from ottla.cli.suggestions import nearest
from ottla.cli.terminal import Failure

if TYPE_CHECKING:
    from ottla.clients.admin import Admin, ConfigEntry, ConfigResource, ConfigSource

EXAMPLES = """
ottla config list topic orders
ottla config get topic orders retention.ms
ottla config set topic orders retention.ms=7d
ottla config unset topic orders retention.ms
ottla config list broker 1 --all
"""

KINDS = ("topic", "broker", "group", "broker-logger", "client-metrics")
_ANY_BROKER = ("default", "")
_HEARD_S = 2.0  # until what was changed is shown as it was all the same


def _kinds(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in (*KINDS, *config_quota.KINDS) if kind.startswith(incomplete)]


def _common(*, name: bool = True) -> list[click.Parameter]:
    """The kind and the name of what has settings."""
    return [
        Argument("kind", "KIND", shell_complete=_kinds, help="topic, broker, group, user, client, ip, ..."),
        Argument("name", "NAME", required=name, help="its name or node id; `default` for all brokers"),
    ]


def _tail() -> list[click.Parameter]:
    """The options that every verb takes."""
    return [
        *output_options(),
        *connection_options(),
    ]


_LIST_PARAMETERS = [
    *_common(name=False),
    Option("-a", "--all", is_flag=True, help="settings at their defaults too"),
    *_tail(),
]


_GET_PARAMETERS = [
    *_common(),
    Argument("settings", "SETTING", nargs=-1, required=True, help="names of settings"),
    *_tail(),
]


_SET_PARAMETERS = [
    *_common(),
    Argument("changes", "SETTING=VALUE", nargs=-1, required=True, help="what to set; 7d, 1GiB are understood"),
    Option("--dry-run", is_flag=True, help="let the broker check it, change nothing"),
    *_tail(),
]


_UNSET_PARAMETERS = [
    *_common(),
    Argument("settings", "SETTING", nargs=-1, required=True, help="names of settings"),
    Option("--dry-run", is_flag=True, help="let the broker check it, change nothing"),
    *_tail(),
]


# -- reading -----------------------------------------------------------------------------------------------------


def _list(options: Options) -> int:
    if quota := config_quota.kind_of(options.kind):
        return config_quota.show(options, quota)
    output = Output(options)
    with open_admin(options) as admin:
        if options.name is None:
            return _list_resources(admin, output, _type(options.kind), everything=options.all)
        resource = _resource(admin, options)
        entries = admin.describe_config(resource, synonyms=True)
    rows = [_row(resource, entry) for entry in entries.values() if options.all or _was_set(entry, resource)]
    if not rows and not output.json:
        output.note(f"Nothing was set for {resource}: --all shows the defaults.")
        return 0
    output.table(_COLUMNS, rows)
    return 0


def _list_resources(admin: "Admin", output: Output, kind: Any, *, everything: bool) -> int:
    from ottla.clients.admin import ConfigResource, ResourceType

    if kind is ResourceType.TOPIC:
        resources = [ConfigResource.topic(topic.name) for topic in admin.list_topics()]
    elif kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        resources = [ConfigResource(kind, str(broker.node_id)) for broker in admin.describe_cluster().brokers]
    else:
        resources = admin.list_config_resources([kind])
    described = admin.describe_configs(resources, synonyms=True) if resources else {}
    rows = [
        {"kind": _kind_name(resource), "name": resource.name, **_row(resource, entry)}
        for resource in resources
        for entry in described[resource].values()
        if everything or _was_set(entry, resource)
    ]
    if not rows and not output.json:
        output.note("Nothing was set: --all shows the defaults.")
        return 0
    output.table([Column("name", narrow=True), *_COLUMNS], rows)
    return 0


def _get(options: Options) -> int:
    if quota := config_quota.kind_of(options.kind):
        return config_quota.show(options, quota)
    output = Output(options)
    with open_admin(options) as admin:
        resource = _resource(admin, options)
        entries = admin.describe_config(resource, synonyms=True)
        _check_known(admin, options.settings, entries, resource)
    for name in options.settings:
        if name not in entries:
            raise Failure(f"{name} is not set for {resource}")
        entry = entries[name]
        value = "" if entry.value is None else entry.value
        output.done(value if len(options.settings) == 1 else f"{name}={value}", _row(resource, entry))
    return 0


def _row(resource: "ConfigResource", entry: "ConfigEntry") -> dict[str, Any]:
    return {
        "kind": _kind_name(resource),
        "name": resource.name or "default",
        "setting": entry.name,
        "value": entry.value,
        "source": _SOURCES.get(entry.source.name, entry.source.name.lower().replace("_", " ")),
        "type": entry.type.name.lower(),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "default": next((s.value for s in entry.synonyms if s.source.name == "DEFAULT"), None),
    }


def _value_text(row: Mapping[str, Any]) -> str:
    if row["sensitive"]:
        return "-" if row["source"] == "default" else "(hidden)"
    return values.explained(row["setting"], row["value"])


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
    Column("value", narrow=True, cell=_value_text),
    Column("source", colour=lambda source: "dim" if source == "default" else None),
]


def _was_set(entry: "ConfigEntry", resource: "ConfigResource") -> bool:
    """Whether somebody set it: for a topic or group on itself, for a broker anywhere."""
    from ottla.clients.admin import ResourceType

    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return not entry.is_default
    return entry.source is _own_source(resource)


def _own_source(resource: "ConfigResource") -> "ConfigSource | None":
    """Where the settings come from that were set for this very resource."""
    from ottla.clients.admin import ConfigSource, ResourceType

    return {
        ResourceType.TOPIC: ConfigSource.TOPIC,
        ResourceType.GROUP: ConfigSource.GROUP,
        ResourceType.CLIENT_METRICS: ConfigSource.CLIENT_METRICS,
        ResourceType.BROKER: ConfigSource.BROKER if resource.name else ConfigSource.CLUSTER_DEFAULT,
        ResourceType.BROKER_LOGGER: ConfigSource.BROKER_LOGGER,
    }.get(resource.type)


# -- changing ----------------------------------------------------------------------------------------------------


def _set(options: Options) -> int:
    from ottla.clients.admin import Append, Subtract

    changes: dict[str, object] = {}
    for word in options.changes:
        name, _, value = word.partition("=")
        if name.endswith(("+", "-")) and "=" in word:
            changes[name[:-1].strip()] = (Append if name.endswith("+") else Subtract)(value)
        else:
            changes.update(values.assignments([word]))
    return _change(options, changes)


def _unset(options: Options) -> int:
    return _change(options, dict.fromkeys(options.settings))


def _change(options: Options, changes: Mapping[str, object]) -> int:
    if quota := config_quota.kind_of(options.kind):
        return config_quota.change(options, quota, changes)
    output = Output(options)
    with open_admin(options) as admin:
        change(admin, output, {_resource(admin, options): changes}, dry_run=options.dry_run)
    return 0


def change(
    admin: "Admin", output: Output, changes: "Mapping[ConfigResource, Mapping[str, object]]", *, dry_run: bool
) -> None:
    """Make the changes and tell each: what it was, what it is. Raises Failure for a setting that there is not."""
    if not changes:
        return
    before = admin.describe_configs(changes)
    for resource, wanted in changes.items():
        _check_known(admin, wanted, before[resource], resource)
    admin.alter_configs(changes, validate_only=dry_run)
    after = before if dry_run else _described_after(admin, changes, before)
    for resource, wanted in changes.items():
        for name, value in wanted.items():
            old, new = before[resource].get(name), after[resource].get(name)
            row = {
                "kind": _kind_name(resource),
                "name": resource.name or "default",
                "setting": name,
                "before": old.value if old else None,
                "value": _asked(value) if dry_run else new.value if new else None,
                "changed": not dry_run,
            }
            output.done(_changed_text(output, row, value, dry_run=dry_run), row)


def _described_after(
    admin: "Admin",
    changes: "Mapping[ConfigResource, Mapping[str, object]]",
    before: "Mapping[ConfigResource, Mapping[str, ConfigEntry]]",
) -> "Mapping[ConfigResource, Mapping[str, ConfigEntry]]":
    """The settings as they are now. Kafka's brokers hear of a change a moment after the controller has made it."""
    deadline_s = time.monotonic() + _HEARD_S
    while True:
        after = admin.describe_configs(changes)
        waiting = any(
            _is_change(resource, before[resource].get(name), value)
            and before[resource].get(name) == after[resource].get(name)
            for resource, wanted in changes.items()
            for name, value in wanted.items()
        )
        if not waiting or time.monotonic() >= deadline_s:
            return after
        time.sleep(0.05)


def _is_change(resource: "ConfigResource", old: "ConfigEntry | None", value: object) -> bool:
    """Whether setting this value surely shows."""
    if value is None:
        return old is not None and old.source is _own_source(resource)
    if not isinstance(value, str) or (old is not None and old.is_sensitive):
        return False
    return old is None or str(old.value).casefold() != value.strip().casefold()


def _changed_text(output: Output, row: Mapping[str, Any], value: object, *, dry_run: bool) -> str:
    name = row["setting"]
    old = values.explained(name, row["before"])
    if dry_run:
        new = "the default" if value is None else values.explained(name, _asked(value))
        return f"{row['name']}: {name} would change from {old} to {new}"
    new = values.explained(name, row["value"])
    default = ", the default" if value is None else ""
    text = f"{row['name']}: {name} is {new}{default}" + (", as before" if new == old else f", was {old}")
    return output.style.green(text)


def _asked(value: object) -> str | None:
    return value if value is None else str(getattr(value, "value", value))


def _check_known(
    admin: "Admin", names: Iterable[str], entries: "Mapping[str, ConfigEntry]", resource: "ConfigResource"
) -> None:
    """Raise Failure for a setting that the resource cannot have, as far as the brokers tell what it can have."""
    from ottla.clients.admin import ConfigResource, ResourceType

    unknown = [name for name in names if name not in entries]
    if not unknown or (not entries and resource.type is not ResourceType.BROKER):
        return
    known = set(entries)
    if resource.type is ResourceType.BROKER and not resource.name:
        # Of what all brokers share, Kafka tells only what was set.
        node_id = admin.describe_cluster().brokers[0].node_id
        known |= set(admin.describe_config(ConfigResource.broker(node_id)))
    for name in unknown:
        if name not in known:
            near = nearest(name, known)
            listing = f"`ottla config list {_kind_name(resource)} {resource.name or 'default'} --all` shows them."
            raise Failure(f"{resource} has no setting {name!r}", f"Did you mean {near}?" if near else listing)


# -- what it is about --------------------------------------------------------------------------------------------


def _type(word: str) -> Any:
    from ottla.clients.admin import ResourceType

    single = word.lower().replace("_", "-")
    single = single if single in KINDS else single.removesuffix("s")
    if single == "group" or single in {"consumer-group", "share-group"}:
        return ResourceType.GROUP
    if single not in KINDS:
        kinds = (*KINDS, *config_quota.KINDS)
        near = nearest(word, kinds)
        advice = f"Did you mean {near}?" if near else f"It may be {', '.join(kinds)}."
        raise Failure(f"nothing of the kind {word!r} has settings", advice, exit_code=2)
    return ResourceType[single.upper().replace("-", "_")]


def _kind_name(resource: "ConfigResource") -> str:
    return resource.type.name.lower().replace("_", "-")


def _resource(admin: "Admin", options: Options) -> "ConfigResource":
    from ottla.clients.admin import ConfigResource, ResourceType

    kind, name = _type(options.kind), options.name
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if kind is ResourceType.BROKER and name in _ANY_BROKER:
            return ConfigResource(kind, "")
        brokers = [str(broker.node_id) for broker in admin.describe_cluster().brokers]
        if name not in brokers:
            shared = ", or `default` for what all share" if kind is ResourceType.BROKER else ""
            raise Failure(f"there is no broker {name!r}", f"There are: {', '.join(brokers)}{shared}.")
    elif kind is ResourceType.TOPIC:
        known = [topic.name for topic in admin.list_topics(include_internal=True)]
        if name not in known:
            raise Failure(*missing(name, known, "topic"))
    return ConfigResource(kind, name)


COMMAND = Group(
    __doc__,
    {
        "list": Command(
            _list,
            _LIST_PARAMETERS,
            "list what was set, and where",
            examples="""
                ottla config list topic                 every topic with settings of its own
                ottla config list topic orders          what was set for it
                ottla config list topic orders --all    with the defaults
                ottla config list broker default
                """,
            aliases=("ls",),
        ),
        "get": Command(
            _get,
            _GET_PARAMETERS,
            "print values of settings",
            description="Print values of settings: the bare value if one is asked for, else NAME=VALUE lines.",
            examples="""
                ottla config get topic orders retention.ms
                ottla config get broker 1 log.dirs num.partitions
                """,
        ),
        "set": Command(
            _set,
            _SET_PARAMETERS,
            "change settings",
            description="Change settings. += and -= add to and take from a list.",
            examples="""
                ottla config set topic orders retention.ms=7d max.message.bytes=4MiB
                ottla config set topic orders cleanup.policy+=compact
                ottla config set broker default log.cleaner.threads=2 --dry-run
                ottla config set group billing consumer.session.timeout.ms=50s
                """,
        ),
        "unset": Command(
            _unset,
            _UNSET_PARAMETERS,
            "take settings back to their defaults",
            examples="ottla config unset topic orders retention.ms",
        ),
    },
    EXAMPLES,
)
