"""Show and change the settings of topics, brokers, groups and more, with the source of each value.

KIND is topic, broker, group, broker-logger or client-metrics, or one whose settings are quotas: user, client or ip. The
plurals of Kafka's tool are accepted. NAME is the name of a topic or group, the node id of a broker, or `default` for
the settings that all brokers (users, clients, addresses) share.
"""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ottla.cli import config_quota, values
from ottla.cli.commands import Argument, Command, Group, Option, Options, dry_run_option
from ottla.cli.connect import connection_options, open_admin
from ottla.cli.names import missing
from ottla.cli.output import Column, Output, output_options
from ottla.cli.suggestions import did_you_mean
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
_ALL_BROKERS = ("default", "")
_PROPAGATION_S = 2.0  # the longest wait until a broker reports a changed value


def _kinds(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in (*KINDS, *config_quota.KINDS) if kind.startswith(incomplete)]


def _resource_parameters(*, name: bool = True) -> list[click.Parameter]:
    return [
        Argument("kind", "KIND", shell_complete=_kinds, help="topic, broker, group, user, client, ip, ..."),
        Argument("name", "NAME", required=name, help="its name or node id; `default` for all brokers"),
    ]


_LIST_PARAMETERS = [
    *_resource_parameters(name=False),
    Option("-a", "--all", is_flag=True, help="also settings with default values"),
    *output_options(),
    *connection_options(),
]


_GET_PARAMETERS = [
    *_resource_parameters(),
    Argument("settings", "SETTING", nargs=-1, required=True, help="names of settings"),
    *output_options(),
    *connection_options(),
]


_SET_PARAMETERS = [
    *_resource_parameters(),
    Argument("changes", "SETTING=VALUE", nargs=-1, required=True, help="settings with new values, such as 7d or 1GiB"),
    dry_run_option(),
    *output_options(),
    *connection_options(),
]


_UNSET_PARAMETERS = [
    *_resource_parameters(),
    Argument("settings", "SETTING", nargs=-1, required=True, help="names of settings"),
    dry_run_option(),
    *output_options(),
    *connection_options(),
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
        "default": _default(entry),
    }


def _default(entry: "ConfigEntry") -> str | None:
    """Return the default in the unit of the entry: its synonym may be in hours, as log.retention.hours is."""
    synonym = next((each for each in entry.synonyms if each.source.name == "DEFAULT"), None)
    if synonym is None or synonym.value is None or not entry.name.endswith(".ms"):
        return None if synonym is None else synonym.value
    factor = _IN_MS.get(synonym.name.rpartition(".")[2], 1)
    return str(int(synonym.value) * factor)


def _value_text(row: Mapping[str, Any]) -> str:
    if row["sensitive"]:
        return "-" if row["source"] == "default" else "(hidden)"
    return values.explained(row["setting"], row["value"])


_IN_MS = {"hours": 3_600_000, "minutes": 60_000}
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
    """Whether the value was set: for a topic or group on itself, for a broker in any place."""
    from ottla.clients.admin import ResourceType

    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return not entry.is_default
    return entry.source is _own_source(resource)


def _own_source(resource: "ConfigResource") -> "ConfigSource | None":
    """Return the source of the settings that were set for this resource itself."""
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
    """Make the changes, and print the old and new value of each. Raises Failure for an unknown setting."""
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
                "value": _requested(value) if dry_run else new.value if new else None,
                "changed": not dry_run,
            }
            output.done(_changed_text(output, row, value, dry_run=dry_run), row)


def _described_after(
    admin: "Admin",
    changes: "Mapping[ConfigResource, Mapping[str, object]]",
    before: "Mapping[ConfigResource, Mapping[str, ConfigEntry]]",
) -> "Mapping[ConfigResource, Mapping[str, ConfigEntry]]":
    """Read the settings again; waits until each change is visible.

    The controller acknowledges a change before the brokers have applied it.
    """
    deadline_s = time.monotonic() + _PROPAGATION_S
    while True:
        after = admin.describe_configs(changes)
        is_stale = any(
            _is_visible_change(resource, before[resource].get(name), value)
            and before[resource].get(name) == after[resource].get(name)
            for resource, wanted in changes.items()
            for name, value in wanted.items()
        )
        if not is_stale or time.monotonic() >= deadline_s:
            return after
        time.sleep(0.05)


def _is_visible_change(resource: "ConfigResource", old: "ConfigEntry | None", value: object) -> bool:
    """Whether the reported setting must differ after this change."""
    if value is None:
        return old is not None and old.source is _own_source(resource)
    if not isinstance(value, str) or (old is not None and old.is_sensitive):
        return False
    return old is None or str(old.value).casefold() != value.strip().casefold()


def _changed_text(output: Output, row: Mapping[str, Any], value: object, *, dry_run: bool) -> str:
    name = row["setting"]
    old = values.explained(name, row["before"])
    if dry_run:
        new = "the default" if value is None else values.explained(name, _requested(value))
        return f"{row['name']}: {name} would change from {old} to {new}"
    new = values.explained(name, row["value"])
    default = ", the default" if value is None else ""
    text = f"{row['name']}: {name} is {new}{default}" + (", as before" if new == old else f", was {old}")
    return output.style.green(text)


def _requested(value: object) -> str | None:
    return value if value is None else str(getattr(value, "value", value))


def _check_known(
    admin: "Admin", names: Iterable[str], entries: "Mapping[str, ConfigEntry]", resource: "ConfigResource"
) -> None:
    """Raise Failure for a setting that does not exist for the resource, as far as the brokers report its settings."""
    from ottla.clients.admin import ConfigResource, ResourceType

    unknown = [name for name in names if name not in entries]
    if not unknown or (not entries and resource.type is not ResourceType.BROKER):
        return
    known = set(entries)
    if resource.type is ResourceType.BROKER and not resource.name:
        # For the settings that all brokers share, Kafka reports only those that were set.
        node_id = admin.describe_cluster().brokers[0].node_id
        known |= set(admin.describe_config(ConfigResource.broker(node_id)))
    for name in unknown:
        if name not in known:
            listing = f"`ottla config list {_kind_name(resource)} {resource.name or 'default'} --all` shows all."
            raise Failure(f"{resource} has no setting {name!r}", *did_you_mean(name, known, listing))


# -- resources ---------------------------------------------------------------------------------------------------


def _type(word: str) -> Any:
    from ottla.clients.admin import ResourceType

    single = word.lower().replace("_", "-")
    single = single if single in KINDS else single.removesuffix("s")
    if single == "group" or single in {"consumer-group", "share-group"}:
        return ResourceType.GROUP
    if single not in KINDS:
        kinds = (*KINDS, *config_quota.KINDS)
        advice = did_you_mean(word, kinds, f"It may be {', '.join(kinds)}.")
        raise Failure(f"unknown kind {word!r}", *advice, exit_code=2)
    return ResourceType[single.upper().replace("-", "_")]


def _kind_name(resource: "ConfigResource") -> str:
    return resource.type.name.lower().replace("_", "-")


def _resource(admin: "Admin", options: Options) -> "ConfigResource":
    from ottla.clients.admin import ConfigResource, ResourceType

    kind, name = _type(options.kind), options.name
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if kind is ResourceType.BROKER and name in _ALL_BROKERS:
            return ConfigResource(kind, "")
        brokers = [str(broker.node_id) for broker in admin.describe_cluster().brokers]
        if name not in brokers:
            shared = ", and `default` for all brokers" if kind is ResourceType.BROKER else ""
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
            "list settings with their sources",
            examples="""
                ottla config list topic                 the settings of all topics
                ottla config list topic orders          the settings of one topic
                ottla config list topic orders --all    with the defaults
                ottla config list broker default
                """,
            aliases=("ls",),
        ),
        "get": Command(
            _get,
            _GET_PARAMETERS,
            "print values of settings",
            description="Print values of settings: for one setting only the value, for several NAME=VALUE lines.",
            examples="""
                ottla config get topic orders retention.ms
                ottla config get broker 1 log.dirs num.partitions
                """,
        ),
        "set": Command(
            _set,
            _SET_PARAMETERS,
            "change settings",
            description="Change settings. += adds an item to a list, -= removes it.",
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
            "reset settings to their defaults",
            examples="ottla config unset topic orders retention.ms",
        ),
    },
    EXAMPLES,
)
