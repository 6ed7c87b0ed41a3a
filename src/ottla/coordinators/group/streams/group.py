"""A streams group: its members, its topology and the owners of its tasks. Only replay changes its durable part."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.coordinators.group.modern import ModernGroup
from ottla.coordinators.group.streams.member import StreamsMember
from ottla.coordinators.group.streams.tasks import NOTHING, TaskId, Tasks, task_ids
from ottla.coordinators.group.streams.topology import StreamsTopology

if TYPE_CHECKING:
    from ottla.coordinators.group.streams.topics import ConfiguredTopology
    from ottla.protocol.messages.streams_group_heartbeat import EndpointToPartitions

# A new group and its empty target assignment begin in this epoch, so that members leave epoch 0 while they wait.
FIRST_EPOCH = 1
NO_MEMBER = StreamsMember("")


class StreamsGroup(ModernGroup[StreamsMember]):
    """The group."""

    __slots__ = (
        "active_owners",
        "assignment_settings",
        "configured",
        "endpoint_epoch",
        "endpoints",
        "replica_owners",
        "shutdown_member",
        "targets",
        "topology",
        "validated_epoch",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state.epoch = self.target.epoch = FIRST_EPOCH
        self.topology: StreamsTopology | None = None
        self.validated_epoch = 0
        """The epoch of the topology whose topics are as they should be; -1 if they are not."""
        self.assignment_settings: dict[str, str] = {}
        """The settings of the assignor at the group's epoch."""
        self.targets: dict[str, Tasks] = {}
        """The target assignment; its epoch is in `target`."""
        self.active_owners: dict[TaskId, str] = {}
        """The member that owns each active task, also while it gives the task up."""
        self.replica_owners: dict[TaskId, Counter[str]] = {}
        """How many standby or warm-up tasks each process has of a task; no count is 0."""
        # Not durable: the topology compared with the topics, the member that requested the shutdown of the application,
        # and what members report for interactive queries.
        self.configured: ConfiguredTopology | None = None
        self.shutdown_member: str | None = None
        self.endpoint_epoch = 0
        self.endpoints: dict[str, EndpointToPartitions] = {}

    # -- queries -----------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """Kafka's name of the state. O(members)."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return "NotReady"
        if not self.state.is_assigned:
            return "Assigning"
        epoch = self.target.epoch
        return "Stable" if all(m.is_reconciled(epoch) for m in self.members.values()) else "Reconciling"

    def is_subscribed(self, topic: str) -> bool:
        """Whether members read `topic`."""
        return bool(self.members) and self.topology is not None and topic in self.topology.subtopology_of

    def target_of(self, member_id: str) -> Tasks:
        """The target of a member; empty if it has none."""
        return self.targets.get(member_id, NOTHING)

    def active_process(self, task: TaskId) -> str | None:
        """The process whose member owns an active task; None if no member does."""
        member_id = self.active_owners.get(task)
        return None if member_id is None else self.members[member_id].process_id

    def has_replica(self, task: TaskId, process_id: str) -> bool:
        """Whether a process has a standby or warm-up task."""
        return process_id in self.replica_owners.get(task, ())

    # -- replay ------------------------------------------------------------------------------------------------

    def put(self, member: StreamsMember) -> None:
        """Add a member, or replace its previous value."""
        self._release(self.members.get(member.member_id, NO_MEMBER))
        for tasks in (member.owned, member.revoking):
            self.active_owners.update(dict.fromkeys(task_ids(tasks.active), member.member_id))
            for task in tasks.replicas:
                self.replica_owners.setdefault(task, Counter())[member.process_id] += 1
        self.members[member.member_id] = member
        self.endpoints.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member, if it exists."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
            self.endpoints.pop(member_id, None)
        if not self.members:
            self.shutdown_member = None

    def _release(self, member: StreamsMember) -> None:
        for tasks in (member.owned, member.revoking):
            for task in task_ids(tasks.active):
                if self.active_owners.get(task) == member.member_id:
                    del self.active_owners[task]
            for task in tasks.replicas:
                left = self.replica_owners[task] - Counter({member.process_id: 1})
                if left:
                    self.replica_owners[task] = left
                else:
                    del self.replica_owners[task]

    def put_topology(self, topology: StreamsTopology | None) -> None:
        """Replace the topology."""
        before, after = self.topology, topology
        self.state.topics.replace(
            () if before is None else before.required_topics, () if after is None else after.required_topics
        )
        self.topology = topology
        self.configured = None
        self.endpoints.clear()

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().validate()
        owners: dict[TaskId, str] = {}
        replicas: dict[TaskId, Counter[str]] = {}
        for member_id, member in self.members.items():
            assert member.member_id == member_id
            for tasks in (member.owned, member.revoking):
                for task in task_ids(tasks.active):
                    other = owners.setdefault(task, member_id)
                    assert other == member_id, f"{other} and {member_id} own the active task {task}"
                for task in tasks.replicas:
                    replicas.setdefault(task, Counter())[member.process_id] += 1
        assert owners == self.active_owners
        assert replicas == self.replica_owners
        for task, processes in replicas.items():
            assert max(processes.values()) == 1, f"a process has the standby task {task} twice"
            active = self.active_process(task)
            assert active is None or active not in processes, f"a process has {task} as active and standby task"
        topics = frozenset() if self.topology is None else self.topology.required_topics
        assert self.state.topics.by_name.keys() == topics
