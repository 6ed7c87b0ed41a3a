"""`ottla topic delete-records`: the first records of a partition."""

from __future__ import annotations

from ottla.cli.commands import Argument, Option, Options, require_one, yes_option
from ottla.cli.connect import connect
from ottla.cli.names import all_topics, check_exists, confirm_deletion
from ottla.cli.output import Output
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.admin.record_deletion import delete_records, plan_deletion

DELETE = [
    Argument("topic", "TOPIC", required=True, help="the topic"),
    Option("-p, --partition N", "the partition", type=int, required=True),
    Option("--before OFFSET", "delete the records before this offset", type=int),
    Option("--all", "delete all records of the partition"),
    yes_option(),
    Option("--dry-run", "only show how many records would be deleted"),
]
EXAMPLES = """
ottla topic delete-records orders -p 0 --before 2 --dry-run
ottla topic delete-records orders -p 0 --before 2 --yes
"""


def delete(options: Options) -> None:
    """Delete the first records of a partition. At a terminal the command asks for confirmation."""
    require_one(options, "--before", "--all")
    if options.partition < 0 or (options.before is not None and options.before < 0):
        raise Failure("a partition and an offset are at least 0", exit_code=2)
    admin, output = connect(options), Output(options)
    check_exists(options.topic, all_topics(admin), "topic")
    found = plan_deletion(admin, TopicPartition(options.topic, options.partition), options.before)
    what = f"{units.plural(found.offsets, 'offset')} of {found.partition}, from {found.first} to {found.before}"
    if options.dry_run or not found.offsets:
        output.changed(f"{what}: would be deleted", found.data(is_done=False), made=False)
        return
    confirm_deletion(f"Delete {what}?", yes=options.yes)
    first = delete_records(admin, found)
    output.changed(
        f"{found.partition}: begins at offset {first} now, at {found.first} before", found.data(is_done=True)
    )
