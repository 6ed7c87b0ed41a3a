"""Create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.cli import topic_describe, topic_leaders, topic_records
from ottla.cli.commands import (
    Argument,
    Group,
    Option,
    Options,
    dry_run_option,
    quiet_option,
    require_one,
    require_positive,
    yes_option,
)
from ottla.cli.config import change
from ottla.cli.connect import connect, connection_options
from ottla.cli.names import (
    all_topics,
    choose,
    confirm_deletion,
    enumerated,
    if_exists_option,
    name_parameters,
    names_of,
    report_deletions,
)
from ottla.cli.output import Column, Output, number, output_options, size
from ottla.cli.topic_describe import selectable
from ottla.clients import admin as api
from ottla.clients.errors import ClientError, InvalidConfig, TopicAlreadyExists
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import MAX_INT32
from ottla.config import TOPIC_SETTINGS
from ottla.tools import values
from ottla.tools.admin.outcomes import outcomes
from ottla.tools.admin.topic_facts import facts_of
from ottla.tools.suggestions import did_you_mean

COMMAND = Group(
    __doc__,
    """
    ottla topic create payments --partitions 6 --config retention.ms=7d
    ottla topic list
    ottla topic describe payments
    ottla topic delete payments --yes
    """,
    shared=[*output_options(), *connection_options()],
)

_DELETED_PER_REQUEST = 50


@COMMAND.verb(
    "create",
    Argument("names", "TOPIC", nargs=-1, help="names of topics"),
    Option("--topic TOPIC", name="more_names", multiple=True, hidden=True),
    Option("-p, --partitions N", "default: the broker's num.partitions", type=int),
    Option("-r, --replication-factor N", "default: the broker's default.replication.factor", type=int),
    Option(
        "-c, --config NAME=VALUE",
        "a setting of the topics; may be repeated",
        name="configs",
        multiple=True,
        settings=lambda: TOPIC_SETTINGS,
    ),
    Option(
        "--replica-assignment ID:ID,..",
        "the replicas of each partition by node id, the leader first: 1:2,2:3 is two partitions",
    ),
    Option("--if-not-exists", "skip topics that exist"),
    dry_run_option(),
    examples="""
    ottla topic create logs-web
    ottla topic create logs-app logs-db --partitions 6
    ottla topic create events -c retention.ms=7d -c max.message.bytes=4MiB
    ottla topic create users --config cleanup.policy=compact --if-not-exists
    """,
)
def _create(options: Options) -> None:
    """Create topics."""
    output = Output(options)
    assignments = _assignments(options.replica_assignment) if options.replica_assignment else None
    if assignments and (options.partitions is not None or options.replication_factor is not None):
        raise Failure("--replica-assignment excludes --partitions and --replication-factor", exit_code=2)
    require_positive(options, "--partitions", "--replication-factor")
    config = values.assignments(options.configs)
    partitions, factor = options.partitions or -1, options.replication_factor or -1
    topics = [
        api.NewTopic(name, partitions, factor, config, assignments=assignments)
        for name in dict.fromkeys(names_of(options, "topic"))
    ]
    created, errors = outcomes(connect(options).create_topics, topics, validate_only=options.dry_run)
    _report_created(output, created.values(), dry_run=options.dry_run)
    existing = [name for name, error in errors.items() if isinstance(error, TopicAlreadyExists)]
    if errors and (not options.if_not_exists or len(existing) < len(errors)):
        if any(isinstance(error, InvalidConfig) for error in errors.values()):
            _check_settings(config)
        raise api.PartialFailure.of(errors, created)
    for name in errors:
        output.done(f"{name}: already exists", {"topic": name, "created": False})


def _check_settings(names: Iterable[str]) -> None:
    """Raise Failure for a setting that is similar to a topic's setting: the broker's error has no suggestion."""
    for name in names:
        if name not in TOPIC_SETTINGS and (advice := did_you_mean(name, TOPIC_SETTINGS)):
            raise Failure(f"topics have no setting {name!r}", *advice)


def _report_created(output: Output, created: Iterable[api.TopicCreated], *, dry_run: bool) -> None:
    for topic in created:
        shape = ""
        if topic.partitions > 0:
            replicas = units.plural(topic.replication_factor, "replica")
            shape = f" with {units.plural(topic.partitions, 'partition')}, {replicas} each"
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
    assigned: dict[int, list[int]] = {}
    for partition, part in enumerate(text.split(",")):
        node_ids = [units.whole_number(word, MAX_INT32) for word in part.split(":")]
        assigned[partition] = [node_id for node_id in node_ids if node_id is not None]
        if len(assigned[partition]) < len(node_ids):
            advice = "Colons separate the node ids of a partition, commas separate partitions: 1:2,2:3"
            raise Failure(f"--replica-assignment {text[:300]!r} is not of the form ID:ID,..", advice, exit_code=2)
    return assigned


@COMMAND.verb(
    "list",
    *name_parameters("topic", optional=True),
    Option("-l, --long", "with replicas, records, size and cleanup policy"),
    quiet_option(),
    Option("--internal", "also Kafka's internal topics"),
    Option("--exclude-internal", hidden=True),
    examples="""
    ottla topic list
    ottla topic list 'logs-*' --long       with records and size
    ottla topic list --json | jq -r .topic
    """,
    aliases=("ls",),
)
def _list(options: Options) -> None:
    """List topics."""
    admin = connect(options)
    listed = all_topics(admin)
    wanted = names_of(options, "topic", optional=True)
    known = selectable(listed.values(), wanted, internal=options.internal)
    names = choose(wanted, known, "topic", regex=options.regex)
    rows: list[dict[str, Any]] = [
        {"topic": name, "partition_count": listed[name].partitions, "internal": listed[name].is_internal}
        for name in names
    ]
    columns = [Column("topic", narrow=True), number("partition_count", "PARTITIONS")]
    if options.long:
        for row, facts in zip(rows, facts_of(admin, names), strict=True):
            row.update(facts.summary())
        columns += [
            number("replication_factor", "REPLICAS"),
            number("records"),
            size("size", "SIZE"),
            Column("cleanup_policy", "CLEANUP"),
            Column(
                "under_replicated", "OUT OF SYNC", right=True, colour=lambda n: "yellow" if n else None, optional=True
            ),
        ]
    Output(options).listing(
        "topic", columns, rows, empty="There is no topic yet. `ottla topic create NAME` creates one."
    )


COMMAND.verb(
    "describe",
    *topic_describe.PARAMETERS,
    examples=topic_describe.EXAMPLES,
    summary="show partitions, leaders, replicas, offsets, sizes, settings",
)(topic_describe.describe)


COMMAND.verb("reassign", *topic_leaders.REASSIGN, examples=topic_leaders.REASSIGN_EXAMPLES)(topic_leaders.reassign)
COMMAND.verb("elect-leaders", *topic_leaders.ELECT, examples=topic_leaders.ELECT_EXAMPLES)(topic_leaders.elect)


@COMMAND.verb(
    "alter",
    *name_parameters("topic"),
    Option(
        "-c, --config NAME=VALUE",
        "change a setting; may be repeated",
        name="configs",
        multiple=True,
        settings=lambda: TOPIC_SETTINGS,
    ),
    Option("--delete-config NAME", "reset a setting to the broker's default", multiple=True),
    Option("-p, --partitions N", "the new number of partitions", type=int),
    if_exists_option("topic"),
    dry_run_option(),
    examples="""
    ottla topic alter orders --config retention.ms=30d
    ottla topic alter 'logs-*' --delete-config retention.ms --dry-run
    ottla topic alter orders --partitions 12
    """,
)
def _alter(options: Options) -> None:
    """Change the settings or the number of partitions of topics."""
    output = Output(options)
    changes: dict[str, object] = {**values.assignments(options.configs), **dict.fromkeys(options.delete_config)}
    if not changes and options.partitions is None:
        advice = "Use --config NAME=VALUE, --delete-config NAME or --partitions N."
        raise Failure("nothing to alter", advice, exit_code=2)
    wanted = names_of(options, "topic")
    admin = connect(options)
    names = _existing(admin, options, wanted)
    if changes:
        change(admin, output, {api.ConfigResource.topic(name): changes for name in names}, dry_run=options.dry_run)
    if options.partitions is not None:
        _grow(admin, output, dict.fromkeys(names, options.partitions), dry_run=options.dry_run)


@COMMAND.verb(
    "delete",
    *name_parameters("topic"),
    if_exists_option("topic"),
    yes_option(),
    Option("--dry-run", "only show the topics that would be deleted"),
    examples="""
    ottla topic delete logs-web
    ottla topic delete 'logs-*' --yes
    ottla topic delete maybe-there --if-exists
    """,
    aliases=("rm",),
)
def _delete(options: Options) -> None:
    """Delete topics with their records. At a terminal the command asks for confirmation."""
    output = Output(options)
    wanted = names_of(options, "topic")
    admin = connect(options)
    names = _existing(admin, options, wanted)
    if options.dry_run:
        for name in names:
            output.done(f"{name}: would be deleted", {"topic": name, "deleted": False})
        return
    if names:
        question = f"Delete {units.plural(len(names), 'topic')} with all records: {enumerated(names)}?"
        confirm_deletion(question, yes=options.yes)
    else:
        output.note("There is nothing to delete.")
    errors: dict[str, ClientError] = {}
    with output.progress(len(names), "topics") as bar:
        for start in range(0, len(names), _DELETED_PER_REQUEST):
            part = names[start : start + _DELETED_PER_REQUEST]
            errors |= outcomes(admin.delete_topics, part)[1]
            bar.advance(len(part))
    report_deletions(output, "topic", names, errors)


COMMAND.verb("delete-records", *topic_records.DELETE, examples=topic_records.EXAMPLES)(topic_records.delete)


@COMMAND.verb(
    "add-partitions",
    *name_parameters("topic"),
    Option("--by N", "add N partitions", type=int),
    Option("--to, --partitions N", "the new number of partitions", name="to", type=int),
    if_exists_option("topic"),
    dry_run_option(),
    examples="""
    ottla topic add-partitions orders --by 6
    ottla topic add-partitions orders --to 24
    """,
)
def _add_partitions(options: Options) -> None:
    """Add partitions to topics. From then on keys are distributed over all partitions: new records
    of a key may be in another partition than its earlier records.
    """
    require_one(options, "--by", "--to")
    require_positive(options, "--by")
    wanted = names_of(options, "topic")
    admin = connect(options)
    known = all_topics(admin)
    targets = {
        name: known[name].partitions + options.by if options.by else options.to
        for name in _existing(admin, options, wanted)
    }
    _grow(admin, Output(options), targets, dry_run=options.dry_run)


def _grow(admin: api.Admin, output: Output, wanted: Mapping[str, int], *, dry_run: bool) -> None:
    before = {name: topic.partitions for name, topic in all_topics(admin).items()}
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
        partitions = units.plural(count, "partition")
        row = {"topic": name, "before": before.get(name), "partition_count": count, "changed": not dry_run}
        if name not in more:
            output.done(f"{name}: already has {partitions}", {**row, "changed": False})
        else:
            text = f"would have {partitions}" if dry_run else f"has {partitions} now"
            output.changed(f"{name}: {text}, {before.get(name)} before", row, made=not dry_run)


def _existing(admin: api.Admin, options: Options, wanted: Sequence[str]) -> list[str]:
    """Return the existing topics that match; internal topics match only by their exact names."""
    known = selectable(all_topics(admin).values(), wanted)
    return choose(wanted, known, "topic", regex=options.regex, missing_ok=options.if_exists)
