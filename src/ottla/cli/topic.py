"""Create, list, describe, alter and delete topics."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli import topic_describe, units, values
from ottla.cli.commands import Argument, Command, Group, Option, Options, dry_run_option, require_one
from ottla.cli.connect import connection_options, open_admin
from ottla.cli.names import choose, confirm_deletion, enumerated, name_parameters, names_of, report_deletions
from ottla.cli.output import Column, Output, number, output_options, size
from ottla.cli.suggestions import did_you_mean
from ottla.cli.terminal import Failure
from ottla.cli.topic_describe import selectable

if TYPE_CHECKING:
    from ottla.clients.admin import Admin

EXAMPLES = """
ottla topic create payments --partitions 6 --config retention.ms=7d
ottla topic list
ottla topic describe payments
ottla topic delete payments --yes
"""

_DELETED_PER_REQUEST = 50


# -- create ------------------------------------------------------------------------------------------------------


_CREATE_PARAMETERS = [
    Argument("names", "TOPIC", nargs=-1, help="names of topics"),
    Option("--topic", "more_names", multiple=True, hidden=True),
    Option("-p", "--partitions", type=int, metavar="N", help="default: the broker's num.partitions"),
    Option(
        "-r", "--replication-factor", type=int, metavar="N", help="default: the broker's default.replication.factor"
    ),
    Option(
        "-c",
        "--config",
        "configs",
        multiple=True,
        metavar="NAME=VALUE",
        help="a setting of the topics; may be repeated",
    ),
    Option(
        "--replica-assignment",
        metavar="ID:ID,..",
        help="the replicas of each partition by node id, the leader first: 1:2,2:3 is two partitions",
    ),
    Option("--if-not-exists", is_flag=True, help="skip topics that exist"),
    dry_run_option(),
    *output_options(),
    *connection_options(),
]


def _create(options: Options) -> int:
    from ottla.clients.admin import NewTopic, PartialFailure
    from ottla.clients.errors import InvalidConfig, TopicAlreadyExists

    output = Output(options)
    assignments = _assignments(options.replica_assignment) if options.replica_assignment else None
    if assignments and (options.partitions is not None or options.replication_factor is not None):
        raise Failure("--replica-assignment excludes --partitions and --replication-factor", exit_code=2)
    for flag, given in (("--partitions", options.partitions), ("--replication-factor", options.replication_factor)):
        if given is not None and given < 1:
            raise Failure(f"{flag} is {given}; it must be at least 1", exit_code=2)
    config = values.assignments(options.configs)
    partitions, factor = options.partitions or -1, options.replication_factor or -1
    topics = [
        NewTopic(name, partitions, factor, config, assignments=assignments)
        for name in dict.fromkeys(names_of(options, "topic"))
    ]
    with open_admin(options) as admin:
        errors: Mapping[Any, Exception] = {}
        try:
            created = admin.create_topics(topics, validate_only=options.dry_run)
        except PartialFailure as failure:
            created, errors = dict(failure.results), dict(failure.errors)
            existing = [name for name, error in errors.items() if isinstance(error, TopicAlreadyExists)]
            if not options.if_not_exists or len(existing) < len(errors):
                _report_created(output, created.values(), dry_run=options.dry_run)
                if any(isinstance(error, InvalidConfig) for error in errors.values()):
                    _check_settings(config)
                raise
        _report_created(output, created.values(), dry_run=options.dry_run)
        for name in errors:
            output.done(f"{name}: already exists", {"topic": name, "created": False})
    return 0


def _check_settings(names: Iterable[str]) -> None:
    """Raise Failure for a setting that is similar to a topic's setting: the broker's error has no suggestion."""
    from ottla.config import TOPIC_SETTINGS

    for name in names:
        if name not in TOPIC_SETTINGS and (advice := did_you_mean(name, TOPIC_SETTINGS)):
            raise Failure(f"topics have no setting {name!r}", *advice)


def _report_created(output: Output, created: Iterable[Any], *, dry_run: bool) -> None:
    for topic in created:
        shape = ""
        if topic.partitions > 0:
            shape = f" with {units.plural(topic.partitions, 'partition')}, "
            shape += units.plural(topic.replication_factor, "replica") + " each"
        row = {
            "topic": topic.name,
            "created": not dry_run,
            "topic_id": topic.topic_id,
            "partition_count": topic.partitions,
            "replication_factor": topic.replication_factor,
        }
        text = f"{topic.name}: would be created" if dry_run else output.style.green(f"{topic.name}: created")
        output.done(text + shape, row)


def _assignments(text: str) -> dict[int, list[int]]:
    if not re.fullmatch(r"\d+(:\d+)*(,\d+(:\d+)*)*", text):
        advice = "Colons separate the node ids of a partition, commas separate partitions: 1:2,2:3"
        raise Failure(f"--replica-assignment {text!r} is not of the form ID:ID,..", advice, exit_code=2)
    return {partition: [int(node_id) for node_id in part.split(":")] for partition, part in enumerate(text.split(","))}


# -- list --------------------------------------------------------------------------------------------------------


_LIST_PARAMETERS = [
    *name_parameters("topic", optional=True),
    Option("-l", "--long", is_flag=True, help="with replicas, records, size and cleanup policy"),
    Option("-q", "--quiet", is_flag=True, help="only names, one per line"),
    Option("--internal", is_flag=True, help="also Kafka's internal topics"),
    Option("--exclude-internal", is_flag=True, hidden=True),
    *output_options(),
    *connection_options(),
]


def _list(options: Options) -> int:
    output = Output(options)
    with open_admin(options) as admin:
        listed = {topic.name: topic for topic in admin.list_topics(include_internal=True)}
        wanted = names_of(options, "topic", optional=True)
        known = selectable(listed.values(), wanted, internal=options.internal)
        names = choose(wanted, known, "topic", regex=options.regex) if wanted else known
        if options.quiet and not output.json:
            output.names(names)
            return 0
        rows: list[dict[str, Any]] = [
            {"topic": name, "partition_count": listed[name].partitions, "internal": listed[name].is_internal}
            for name in names
        ]
        if options.long:
            for row, facts in zip(rows, topic_describe.facts_of(admin, names), strict=True):
                row.update(facts.summary())
    columns = [Column("topic", narrow=True), number("partition_count", "PARTITIONS")]
    if options.long:
        columns += [
            number("replication_factor", "REPLICAS"),
            number("records"),
            size("size", "SIZE"),
            Column("cleanup_policy", "CLEANUP"),
        ]
        if any(row["under_replicated"] for row in rows):
            columns.append(
                Column("under_replicated", "OUT OF SYNC", right=True, colour=lambda n: "yellow" if n else None)
            )
    if not rows and not output.json:
        output.note("There is no topic yet. `ottla topic create NAME` creates one.")
        return 0
    output.table(columns, rows)
    return 0


# -- alter -------------------------------------------------------------------------------------------------------


_ALTER_PARAMETERS = [
    *name_parameters("topic"),
    Option("-c", "--config", "configs", multiple=True, metavar="NAME=VALUE", help="change a setting; may be repeated"),
    Option("--delete-config", multiple=True, metavar="NAME", help="reset a setting to the broker's default"),
    Option("-p", "--partitions", type=int, metavar="N", help="the new number of partitions"),
    Option("--if-exists", is_flag=True, help="skip topics that do not exist"),
    dry_run_option(),
    *output_options(),
    *connection_options(),
]


def _alter(options: Options) -> int:
    from ottla.cli.config import change
    from ottla.clients.admin import ConfigResource

    output = Output(options)
    changes: dict[str, object] = {**values.assignments(options.configs), **dict.fromkeys(options.delete_config)}
    if not changes and options.partitions is None:
        advice = "Use --config NAME=VALUE, --delete-config NAME or --partitions N."
        raise Failure("nothing to alter", advice, exit_code=2)
    wanted = names_of(options, "topic")
    with open_admin(options) as admin:
        names = _existing(admin, options, wanted)
        if changes:
            change(admin, output, {ConfigResource.topic(name): changes for name in names}, dry_run=options.dry_run)
        if options.partitions is not None:
            _grow(admin, output, dict.fromkeys(names, options.partitions), dry_run=options.dry_run)
    return 0


# -- add-partitions ----------------------------------------------------------------------------------------------


_ADD_PARTITIONS_PARAMETERS = [
    *name_parameters("topic"),
    Option("--by", type=int, metavar="N", help="add N partitions"),
    Option("--to", "--partitions", "to", type=int, metavar="N", help="the new number of partitions"),
    Option("--if-exists", is_flag=True, help="skip topics that do not exist"),
    dry_run_option(),
    *output_options(),
    *connection_options(),
]


def _add_partitions(options: Options) -> int:
    require_one(options, "--by", "--to")
    output = Output(options)
    if options.by is not None and options.by < 1:
        raise Failure(f"--by is {options.by}; it must be at least 1", exit_code=2)
    wanted = names_of(options, "topic")
    with open_admin(options) as admin:
        names = _existing(admin, options, wanted)
        counts = {topic.name: topic.partitions for topic in admin.list_topics(include_internal=True)}
        targets = {name: counts[name] + options.by if options.by else options.to for name in names}
        _grow(admin, output, targets, dry_run=options.dry_run)
    return 0


def _grow(admin: "Admin", output: Output, wanted: Mapping[str, int], *, dry_run: bool) -> None:
    before = {topic.name: topic.partitions for topic in admin.list_topics(include_internal=True)}
    for name, count in wanted.items():
        if count < before.get(name, 0):
            raise Failure(
                f"{name} has {units.plural(before[name], 'partition')}; the number cannot be reduced to {count}",
                "Partitions can only be added. Create a new topic to have fewer.",
            )
    more = {name: count for name, count in wanted.items() if count != before.get(name)}
    if more:
        admin.create_partitions(more, validate_only=dry_run)
    for name, count in wanted.items():
        row = {"topic": name, "before": before.get(name), "partition_count": count, "changed": not dry_run}
        if name not in more:
            output.done(f"{name}: already has {units.plural(count, 'partition')}", {**row, "changed": False})
        else:
            verb = "would have" if dry_run else "has"
            text = f"{name}: {verb} {units.plural(count, 'partition')} now, {before.get(name)} before"
            output.done(text.replace(" now,", ",") if dry_run else output.style.green(text), row)


# -- delete ------------------------------------------------------------------------------------------------------


_DELETE_PARAMETERS = [
    *name_parameters("topic"),
    Option("--if-exists", is_flag=True, help="skip topics that do not exist"),
    Option("-y", "--yes", is_flag=True, help="do not ask"),
    Option("--dry-run", is_flag=True, help="only show the topics that would be deleted"),
    *output_options(),
    *connection_options(),
]


def _delete(options: Options) -> int:
    from ottla.clients.admin import PartialFailure
    from ottla.clients.errors import ClientError

    output = Output(options)
    wanted = names_of(options, "topic")
    with open_admin(options) as admin:
        names = _existing(admin, options, wanted)
        if options.dry_run:
            for name in names:
                output.done(f"{name}: would be deleted", {"topic": name, "deleted": False})
            return 0
        if names:
            question = f"Delete {units.plural(len(names), 'topic')} with all records: {enumerated(names)}?"
            confirm_deletion(question, yes=options.yes)
        else:
            output.note("There is nothing to delete.")
        errors: dict[str, ClientError] = {}
        with output.progress(len(names), "topics") as bar:
            for start in range(0, len(names), _DELETED_PER_REQUEST):
                part = names[start : start + _DELETED_PER_REQUEST]
                try:
                    admin.delete_topics(part)
                except PartialFailure as failure:
                    errors.update(failure.errors)
                bar.advance(len(part))
        report_deletions(output, "topic", names, errors)
    return 0


def _existing(admin: "Admin", options: Options, wanted: Sequence[str]) -> list[str]:
    """Return the existing topics that match; internal topics match only by their exact names."""
    known = selectable(admin.list_topics(include_internal=True), wanted)
    return choose(wanted, known, "topic", regex=options.regex, missing_ok=options.if_exists)


COMMAND = Group(
    __doc__,
    {
        "create": Command(
            _create,
            _CREATE_PARAMETERS,
            "create topics",
            examples="""
                ottla topic create logs-web
                ottla topic create logs-app logs-db --partitions 6
                ottla topic create events -c retention.ms=7d -c max.message.bytes=4MiB
                ottla topic create users --config cleanup.policy=compact --if-not-exists
                """,
        ),
        "list": Command(
            _list,
            _LIST_PARAMETERS,
            "list topics",
            examples="""
                ottla topic list
                ottla topic list 'logs-*' --long       with records and size
                ottla topic list --json | jq -r .topic
                """,
            aliases=("ls",),
        ),
        "describe": topic_describe.COMMAND,
        "alter": Command(
            _alter,
            _ALTER_PARAMETERS,
            "change the settings or the number of partitions of topics",
            examples="""
                ottla topic alter orders --config retention.ms=30d
                ottla topic alter 'logs-*' --delete-config retention.ms --dry-run
                ottla topic alter orders --partitions 12
                """,
        ),
        "delete": Command(
            _delete,
            _DELETE_PARAMETERS,
            "delete topics with their records",
            description="Delete topics with their records. At a terminal the command asks for confirmation.",
            examples="""
                ottla topic delete logs-web
                ottla topic delete 'logs-*' --yes
                ottla topic delete maybe-there --if-exists
                """,
            aliases=("rm",),
        ),
        "add-partitions": Command(
            _add_partitions,
            _ADD_PARTITIONS_PARAMETERS,
            "add partitions to topics",
            description="Add partitions to topics. From then on keys are distributed over all partitions: new records\n"
            "of a key may be in another partition than its earlier records.",
            examples="""
                ottla topic add-partitions orders --by 6
                ottla topic add-partitions orders --to 24
                """,
        ),
    },
    EXAMPLES,
)
