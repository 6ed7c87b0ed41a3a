"""Settings of a group, one row each, in the form of `broker_rows.py` without the update mode: all are dynamic."""

ROWS = """\
consumer.assignment.interval.ms int 1000 0.. medium reported
    Pause between two assignments of a consumer group.
consumer.heartbeat.interval.ms int 5000 1.. medium reported
    Pause between heartbeats of a consumer group's members.
consumer.session.timeout.ms int 45000 1.. medium reported
    How long such a member may be silent.
share.assignment.interval.ms int 1000 0.. medium reported
    Pause between two assignments of a share group.
share.auto.offset.reset string latest offset-reset medium reported
    Where a share group starts: latest, earliest or by_duration:PnDTnHnMnS.
share.delivery.count.limit int 5 2.. medium reported
    How often a record is delivered at most.
share.heartbeat.interval.ms int 5000 1.. medium reported
    Pause between heartbeats of a share group's members.
share.isolation.level string read_uncommitted read_committed|read_uncommitted medium reported
    Whether a share group sees records of open transactions.
share.partition.max.record.locks int 2000 100.. medium reported
    Most records of a partition in delivery at a time.
share.record.lock.duration.ms int 30000 1000.. medium reported
    How long a delivered record is reserved for its consumer.
share.renew.acknowledge.enable boolean true - medium reported
    Whether a consumer may prolong that time.
share.session.timeout.ms int 45000 1.. medium reported
    How long a share group's member may be silent.
streams.assignment.interval.ms int 1000 0.. medium reported
    Pause between two assignments of a streams group.
streams.heartbeat.interval.ms int 5000 1.. medium reported
    Pause between heartbeats of a streams group's members.
streams.initial.rebalance.delay.ms int 3000 0.. medium reported
    How long a new streams group waits for more members.
streams.num.standby.replicas int 0 0.. medium reported
    Standby replicas per task.
streams.session.timeout.ms int 45000 1.. medium reported
    How long a streams group's member may be silent.
"""
