"""The requests for the markers of an exactly-once write, by its tasks and by the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.clients.admin import Admin, GroupOffset
from ottla.clients.errors import ClientError, TopicAlreadyExists, UnknownTopicOrPartition
from ottla.common.ids import TopicPartition
from ottla.spark.exactly_once import MARKERS, Attempt, ExactlyOnceError, Marker, check_layout, task_of
from ottla.spark.options import common_settings

if TYPE_CHECKING:
    from ottla.spark.write_plan import Written

PLACE: Final = TopicPartition(MARKERS, 0)


def read_marker(admin: Admin, attempt: Attempt) -> Marker:
    """The marker of a task. Final if no earlier attempt can commit any more."""
    return _marker(admin.list_group_offsets(attempt.transactional_id, [PLACE], require_stable=True))


def begin_run(admin: Admin, attempt: Attempt) -> None:
    """In the first batch of a task in a run: create the topic, and check the layout of a half-written batch.

    Raises ExactlyOnceError.
    """
    _create_topic(admin)
    if attempt.is_lasting:
        tasks = _tasks_of(admin, attempt.write_name)
        check_layout(attempt, map(_marker, admin.list_offsets_of_groups(tasks).values()))


def check_tasks(client: Mapping[str, object], done: Sequence[Written]) -> None:
    """In the first batch of a run: end the transactions of tasks that do not exist any more.

    `done` are the tasks that have rows. Raises ExactlyOnceError if other tasks have written the batch, too, so that
    rows are written twice.
    """
    write_name, batch = done[0].write_name or "", done[0].batch_id or 0
    tasks = {message.partition_id for message in done}
    with Admin(common_settings(client)) as admin:
        others = [name for name in _tasks_of(admin, write_name) if task_of(name, write_name) not in tasks]
        # No task of this run uses these ids now. From here on, their markers are final.
        admin.fence_producers(others)
        found = {name: _marker(offsets) for name, offsets in admin.list_offsets_of_groups(others).items()}
    for name, marker in found.items():
        if marker.batches > batch:
            raise ExactlyOnceError(
                f"Batch {batch} was half written by tasks that do not exist any more: the rows of {name} may be in the "
                "output twice. The number of tasks must not change while a batch is half written"
            )


def _create_topic(admin: Admin) -> None:
    try:
        admin.describe_topic(MARKERS)
    except UnknownTopicOrPartition:
        pass
    else:
        return
    try:
        admin.create_topic(MARKERS, partitions=1)
    except TopicAlreadyExists:
        return
    except ClientError as error:
        raise ExactlyOnceError(
            f"The topic {MARKERS!r} does not exist and could not be created ({error}). Create it with one partition"
        ) from error


def _tasks_of(admin: Admin, write_name: str) -> list[str]:
    """The transactional ids of the tasks of a write."""
    names = [row.transactional_id for row in admin.list_transactions()]
    return [name for name in names if task_of(name, write_name) is not None]


def _marker(offsets: Mapping[TopicPartition, GroupOffset]) -> Marker:
    row = offsets.get(PLACE)
    return Marker() if row is None else Marker.read(row.offset, row.metadata)
