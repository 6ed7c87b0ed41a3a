"""Streams groups (KIP-1071) in the group coordinator: topology, members, internal topics and tasks.

The members of a streams group are threads of instances of an application. Their topology has subtopologies; a task is a
subtopology and a partition. The coordinator validates the topics of the topology, names the internal topics that must
be created, and assigns the tasks: one active task, and standby tasks of subtopologies with state.

Invariants: an active task has at most one owner, and a process has a task at most once. A member that gives tasks up
owns them until it confirms that. As in Kafka 4.3 there are no warm-up tasks, static members and topic patterns.

Reading order: `tasks`, `config`, `topology`, `topics`, `member`, `group`, `records`, `replay`, `assignor`,
`reconciliation`, `events`, `change`, `endpoints`, `heartbeat`, `fencing`, `admin`.
"""
