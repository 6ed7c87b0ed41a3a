"""Settings of a broker, one row each: name, type, default, validator, importance, update mode, status; doc below.

Names, defaults and limits are those of Kafka 4.3. `settings.py` says what the columns mean; `defaults.py` names the
few defaults that differ here.
"""

ROWS = """\
add.partitions.to.txn.retry.backoff.max.ms int 100 0.. high read-only reported
    Longest pause before a transaction's partition check is tried again.
add.partitions.to.txn.retry.backoff.ms int 20 1.. high read-only reported
    First pause before a transaction's partition check is tried again.
advertised.listeners list null non-empty high read-only works
    Addresses that clients are told to connect to, where they differ from `listeners`.
alter.config.policy.class.name class null - low read-only refused
    Java class that may veto changes of settings.
alter.log.dirs.replication.quota.window.num int 11 1.. low read-only reported
    Samples kept for the quota on moves between log directories.
alter.log.dirs.replication.quota.window.size.seconds int 1 1.. low read-only reported
    Length of such a sample.
auto.create.topics.enable boolean true - high read-only works
    Whether a client's first question about an unknown topic creates it.
auto.leader.rebalance.enable boolean true - high read-only reported
    Whether leadership goes back to preferred replicas by itself; with one node it is always there.
background.threads int 10 1.. high cluster-wide reported
    Threads for background work in Kafka; here the event loop and a small pool do it.
broker.heartbeat.interval.ms int 2000 - medium read-only reported
    Pause between a broker's heartbeats to the controller.
broker.id int -1 - high read-only works
    Older name of `node.id`; both must agree where both are given.
broker.rack string null - medium read-only works
    Name of the rack, told to clients and used for placing replicas.
broker.session.timeout.ms int 9000 - medium read-only reported
    How long a broker may be silent before the controller fences it.
client.quota.callback.class class null - low read-only refused
    Java class that decides quotas.
compression.gzip.level int -1 1..9|-1 medium cluster-wide works
    Level for topics whose `compression.type` is gzip.
compression.lz4.level int 9 1..17 medium cluster-wide works
    Level for topics whose `compression.type` is lz4.
compression.type string producer uncompressed|zstd|lz4|snappy|gzip|producer high cluster-wide works
    Codec in which batches are kept; `producer` keeps what the producer chose.
compression.zstd.level int 3 -131072..22 medium cluster-wide works
    Level for topics whose `compression.type` is zstd.
config.providers list "" - low cluster-wide refused
    Names of Java classes that fill in variables in settings.
connections.max.idle.ms long 600000 - medium read-only works
    A connection that is silent for longer is closed; negative means never.
controlled.shutdown.enable boolean true - medium read-only reported
    Whether a stopping broker first hands its leadership over; with one node nobody can take it.
controller.listener.names list null non-empty high read-only works
    Listeners that serve the controller, for tools with `--bootstrap-controller`; they are not told to ordinary clients.
controller.quorum.append.linger.ms int 25 0.. medium read-only reported
    How long the metadata leader gathers records before it writes.
controller.quorum.auto.join.enable boolean false - low read-only refused
    Whether a new controller adds itself to the voters.
controller.quorum.bootstrap.servers list "" - high read-only works
    Where to ask for the quorum's leader; with one node only its own address makes sense.
controller.quorum.election.backoff.max.ms int 1000 0.. high read-only reported
    Longest random pause before another election.
controller.quorum.election.timeout.ms int 1000 0.. high read-only reported
    How long a candidate waits for votes.
controller.quorum.fetch.max.bytes int 1048576 1.. low read-only reported
    Bytes of metadata asked for in one fetch.
controller.quorum.fetch.snapshot.max.bytes int 1048576 1.. low read-only reported
    Bytes of a metadata snapshot asked for in one fetch.
controller.quorum.fetch.timeout.ms int 2000 0.. high read-only reported
    How long a voter does without its leader before it stands for election.
controller.quorum.request.timeout.ms int 2000 0.. medium read-only reported
    How long a voter waits for an answer.
controller.quorum.retry.backoff.ms int 20 0.. low read-only reported
    Pause before a quorum request is sent again.
controller.quorum.voters list "" - high read-only works
    Static voters as `id@host:port,...`; with one node only itself may be listed.
controller.quota.window.num int 11 1.. low read-only reported
    Samples kept for the quota on changes of topics.
controller.quota.window.size.seconds int 1 1.. low read-only reported
    Length of such a sample.
controller.socket.timeout.ms int 30000 - medium read-only reported
    Socket timeout towards the controller.
cordoned.log.dirs list "" - medium per-broker reported
    Log directories that take no new partitions.
create.topic.policy.class.name class null - low read-only refused
    Java class that may veto new topics.
default.replication.factor int 1 - medium read-only works
    Replicas of a topic created without a number.
delete.records.purgatory.purge.interval.requests int 1 - medium read-only reported
    Housekeeping of waiting requests in Kafka; here they leave at once.
delete.topic.enable boolean true - high read-only works
    Whether topics may be deleted.
early.start.listeners list null - high read-only refused
    Listeners that open before the authorizer is ready.
fetch.max.bytes int 57671680 1024.. medium read-only works
    Most bytes of records in one fetch response.
fetch.purgatory.purge.interval.requests int 1000 - medium read-only reported
    Housekeeping of waiting requests in Kafka; here they leave at once.
follower.fetch.last.tiered.offset.enable boolean false - medium cluster-wide refused
    Whether an empty follower starts from the end of tiered storage.
follower.replication.throttled.rate long 9223372036854775807 0.. medium cluster-wide reported
    Bytes a second that throttled followers fetch.
group.consumer.assignment.interval.ms int 1000 0.. medium cluster-wide reported
    Default pause between two assignments of a consumer group.
group.consumer.assignors list uniform,range non-empty medium read-only reported
    Assignors of the consumer protocol, the default first.
group.consumer.heartbeat.interval.ms int 5000 1.. medium read-only reported
    Default pause between a member's heartbeats of a consumer group.
group.consumer.max.assignment.interval.ms int 15000 0.. medium read-only reported
    Greatest pause between two assignments that a consumer group may be given.
group.consumer.max.heartbeat.interval.ms int 15000 1.. medium read-only reported
    Greatest pause between a member's heartbeats that a consumer group may be given.
group.consumer.max.session.timeout.ms int 60000 1.. medium read-only reported
    Greatest silence of a member that a consumer group may be given.
group.consumer.max.size int 2147483647 1.. medium read-only reported
    Most members of a consumer group.
group.consumer.migration.policy string bidirectional any-case:DISABLED|DOWNGRADE|UPGRADE|BIDIRECTIONAL medium read-only reported
    Whether groups may move between the classic and the consumer protocol.
group.consumer.min.assignment.interval.ms int 0 0.. medium read-only reported
    Least pause between two assignments that a consumer group may be given.
group.consumer.min.heartbeat.interval.ms int 5000 1.. medium read-only reported
    Least pause between a member's heartbeats that a consumer group may be given.
group.consumer.min.session.timeout.ms int 45000 1.. medium read-only reported
    Least silence of a member that a consumer group may be given.
group.consumer.regex.refresh.interval.ms int 600000 10000.. medium read-only reported
    How often subscriptions by pattern are evaluated again.
group.consumer.session.timeout.ms int 45000 1.. medium read-only reported
    Default silence of a member of a consumer group.
group.coordinator.append.linger.ms int -1 -1.. medium read-only reported
    How long the coordinator gathers records before it writes; here it writes once per turn of the loop.
group.coordinator.background.threads int 2 1.. high read-only reported
    Threads for the coordinator's background work.
group.coordinator.cached.buffer.max.bytes int 1048588 524288.. medium cluster-wide reported
    Largest write buffer that the coordinator keeps for reuse.
group.coordinator.rebalance.protocols list classic,consumer,streams non-empty:consumer|classic|share|streams medium read-only reported
    Group protocols that may be used; served now: classic.
group.coordinator.threads int 4 1.. high read-only reported
    Threads of the coordinator; here it runs on the event loop.
group.initial.rebalance.delay.ms int 3000 - medium read-only works
    How long an empty group waits for more members before its first rebalance, at least 20 ms.
group.max.session.timeout.ms int 1800000 - medium read-only works
    Longest session timeout that a classic member may ask for.
group.max.size int 2147483647 1.. medium read-only works
    Most members of a classic group.
group.min.session.timeout.ms int 6000 - medium read-only works
    Shortest session timeout that a classic member may ask for.
group.share.assignment.interval.ms int 1000 0.. medium cluster-wide reported
    Default pause between two assignments of a share group.
group.share.assignors list simple non-empty medium read-only reported
    Assignors of share groups.
group.share.delivery.count.limit int 5 2..10 medium read-only reported
    Default number of deliveries of a record of a share group.
group.share.heartbeat.interval.ms int 5000 1.. medium read-only reported
    Default pause between a member's heartbeats of a share group.
group.share.max.assignment.interval.ms int 15000 0.. medium read-only reported
    Greatest pause between two assignments that a share group may be given.
group.share.max.delivery.count.limit int 10 5..25 medium read-only reported
    Greatest number of deliveries of a record that a share group may be given.
group.share.max.heartbeat.interval.ms int 15000 1.. medium read-only reported
    Greatest pause between a member's heartbeats that a share group may be given.
group.share.max.partition.max.record.locks int 4000 2000..10000 medium read-only reported
    Greatest number of a partition's records in delivery that a share group may be given.
group.share.max.record.lock.duration.ms int 60000 30000..3600000 medium read-only reported
    Greatest time a record is reserved for its consumer that a share group may be given.
group.share.max.session.timeout.ms int 60000 1.. medium read-only reported
    Greatest silence of a member that a share group may be given.
group.share.max.share.sessions int 2000 1.. medium read-only reported
    Most share sessions at a time.
group.share.max.size int 200 1..1000 medium read-only reported
    Most members of a share group.
group.share.min.assignment.interval.ms int 0 0.. medium read-only reported
    Least pause between two assignments that a share group may be given.
group.share.min.delivery.count.limit int 2 2..5 medium read-only reported
    Least number of deliveries of a record that a share group may be given.
group.share.min.heartbeat.interval.ms int 5000 1.. medium read-only reported
    Least pause between a member's heartbeats that a share group may be given.
group.share.min.partition.max.record.locks int 100 100..2000 medium read-only reported
    Least number of a partition's records in delivery that a share group may be given.
group.share.min.record.lock.duration.ms int 15000 1000..30000 medium read-only reported
    Least time a record is reserved for its consumer that a share group may be given.
group.share.min.session.timeout.ms int 45000 1.. medium read-only reported
    Least silence of a member that a share group may be given.
group.share.partition.max.record.locks int 2000 100..10000 medium read-only reported
    Default number of a partition's records in delivery of a share group.
group.share.record.lock.duration.ms int 30000 1000..3600000 medium read-only reported
    Default time a record is reserved for its consumer of a share group.
group.share.session.timeout.ms int 45000 1.. medium read-only reported
    Default silence of a member of a share group.
group.streams.assignment.interval.ms int 1000 0.. medium cluster-wide reported
    Default pause between two assignments of a streams group.
group.streams.heartbeat.interval.ms int 5000 1.. medium read-only reported
    Default pause between a member's heartbeats of a streams group.
group.streams.initial.rebalance.delay.ms int 3000 0.. medium read-only reported
    Default wait of a new group for more members of a streams group.
group.streams.max.assignment.interval.ms int 15000 0.. medium read-only reported
    Greatest pause between two assignments that a streams group may be given.
group.streams.max.heartbeat.interval.ms int 15000 1.. medium read-only reported
    Greatest pause between a member's heartbeats that a streams group may be given.
group.streams.max.session.timeout.ms int 60000 1.. medium read-only reported
    Greatest silence of a member that a streams group may be given.
group.streams.max.size int 2147483647 1.. medium read-only reported
    Most members of a streams group.
group.streams.max.standby.replicas int 2 0.. medium read-only reported
    Greatest number of standby replicas per task that a streams group may be given.
group.streams.min.assignment.interval.ms int 0 0.. medium read-only reported
    Least pause between two assignments that a streams group may be given.
group.streams.min.heartbeat.interval.ms int 5000 1.. medium read-only reported
    Least pause between a member's heartbeats that a streams group may be given.
group.streams.min.session.timeout.ms int 45000 1.. medium read-only reported
    Least silence of a member that a streams group may be given.
group.streams.num.standby.replicas int 0 0.. medium read-only reported
    Default number of standby replicas per task of a streams group.
group.streams.session.timeout.ms int 45000 1.. medium read-only reported
    Default silence of a member of a streams group.
initial.broker.registration.timeout.ms int 60000 - medium read-only reported
    How long a starting broker tries to register.
inter.broker.listener.name string null - medium read-only works
    Listener that brokers use among themselves.
kafka.metrics.polling.interval.secs int 10 1.. low read-only reported
    How often Java metrics reporters are polled.
kafka.metrics.reporters list "" - low read-only refused
    Java classes of the older metrics reporters.
leader.imbalance.check.interval.seconds long 300 1.. high read-only reported
    How often leadership away from preferred replicas is looked for.
leader.replication.throttled.rate long 9223372036854775807 0.. medium cluster-wide reported
    Bytes a second that throttled leaders send to followers.
listener.security.protocol.map string SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT - low per-broker works
    Security protocol of each listener name; only PLAINTEXT is served. Changing it takes a restart.
listeners list PLAINTEXT://:9092 non-empty high per-broker works
    Addresses to listen on, as `NAME://host:port,...`; no host means every interface, port 0 a free one. One that other machines can reach earns a warning. Changing them takes a restart.
log.cleaner.backoff.ms long 15000 0.. medium cluster-wide works
    Pause of the cleaner when nothing is to be compacted.
log.cleaner.dedupe.buffer.size long 134217728 - medium cluster-wide works
    Memory for the cleaner's map of keys, in bytes.
log.cleaner.delete.retention.ms long 86400000 0.. medium cluster-wide works
    How long tombstones and transaction markers stay after compaction.
log.cleaner.enable boolean true - medium read-only works
    Whether logs are compacted at all.
log.cleaner.io.buffer.load.factor double 0.9 - medium cluster-wide works
    How full the cleaner's map may become.
log.cleaner.io.buffer.size int 524288 0.. medium cluster-wide reported
    Memory for the cleaner's reads and writes.
log.cleaner.io.max.bytes.per.second double 1.7976931348623157E308 - medium cluster-wide reported
    Most bytes a second that the cleaner reads and writes.
log.cleaner.max.compaction.lag.ms long 9223372036854775807 1.. medium cluster-wide works
    After how long a record must have been compacted.
log.cleaner.min.cleanable.ratio double 0.5 0..1 medium cluster-wide works
    Share of a log that must be uncompacted before it is compacted.
log.cleaner.min.compaction.lag.ms long 0 0.. medium cluster-wide works
    How long a record stays uncompacted at least.
log.cleaner.threads int 1 0.. medium cluster-wide reported
    Threads of the cleaner; here it is one.
log.cleanup.policy list delete compact|delete medium cluster-wide works
    What happens to old records: delete, compact, both; empty keeps them for ever.
log.dir list /tmp/kafka-logs non-empty high read-only works
    Log directory, used where `log.dirs` is not given.
log.dir.failure.timeout.ms long 30000 1.. low read-only reported
    How long a broker waits for the controller to hear of a failed directory.
log.dirs list null non-empty high read-only works
    Log directories, separated by commas.
log.flush.interval.messages long 9223372036854775807 1.. high cluster-wide works
    Records in a partition after which it is forced to disk.
log.flush.interval.ms long null 0.. high cluster-wide works
    Time after which a partition is forced to disk.
log.flush.offset.checkpoint.interval.ms int 60000 0.. high read-only works
    How often recovery points are written down.
log.flush.scheduler.interval.ms long 9223372036854775807 0.. high read-only works
    How often partitions due for a flush are looked for; stands in for `log.flush.interval.ms`.
log.flush.start.offset.checkpoint.interval.ms int 60000 0.. high read-only works
    How often log start offsets are written down.
log.index.interval.bytes int 4096 0.. medium cluster-wide works
    Bytes of records between two index entries.
log.index.size.max.bytes int 10485760 4.. medium cluster-wide works
    Largest size of an index file.
log.initial.task.delay.ms long 30000 0.. low read-only works
    Pause after start before housekeeping of logs begins.
log.local.retention.bytes long -2 -2.. medium cluster-wide reported
    Bytes kept on local disk beside tiered storage.
log.local.retention.ms long -2 -2.. medium cluster-wide reported
    Time kept on local disk beside tiered storage.
log.message.timestamp.after.max.ms long 3600000 0.. medium cluster-wide works
    How far ahead of the broker's clock a record's timestamp may be.
log.message.timestamp.before.max.ms long 9223372036854775807 0.. medium cluster-wide works
    How far behind the broker's clock a record's timestamp may be.
log.message.timestamp.type string CreateTime CreateTime|LogAppendTime medium cluster-wide works
    Whether a record keeps its producer's time or takes the time of its append.
log.preallocate boolean false - medium cluster-wide reported
    Whether segment files are allocated at full size.
log.retention.bytes long -1 - high cluster-wide works
    Bytes per partition beyond which old segments go; -1 keeps all.
log.retention.check.interval.ms long 300000 1.. medium read-only works
    How often old segments are looked for.
log.retention.hours int 168 - high read-only works
    Hours that records are kept; `log.retention.minutes` and `.ms` come first.
log.retention.minutes int null - high read-only works
    Minutes that records are kept; `log.retention.ms` comes first.
log.retention.ms long null - high cluster-wide works
    Milliseconds that records are kept; -1 keeps all.
log.roll.hours int 168 1.. high read-only works
    Hours after which a new segment begins; `log.roll.ms` comes first.
log.roll.jitter.hours int 0 0.. high read-only works
    Random hours taken off that time; `log.roll.jitter.ms` comes first.
log.roll.jitter.ms long null - high cluster-wide works
    Random milliseconds taken off that time.
log.roll.ms long null - high cluster-wide works
    Milliseconds after which a new segment begins.
log.segment.bytes int 1073741824 1048576.. high cluster-wide works
    Largest size of a segment file.
log.segment.delete.delay.ms long 60000 0.. high cluster-wide works
    How long a deleted file stays on disk under another name.
max.connection.creation.rate int 2147483647 0.. medium cluster-wide works
    New connections a second that are let in.
max.connections int 2147483647 0.. medium cluster-wide works
    Connections at a time. The limit of open files (ulimit -n) allows fewer if it is low: files for the logs are reserved.
max.connections.per.ip int 2147483647 0.. medium cluster-wide works
    Connections at a time from one address.
max.connections.per.ip.overrides string "" - medium cluster-wide works
    The same for single addresses, as `host:count,...`.
max.incremental.fetch.session.cache.slots int 1000 0.. medium read-only works
    Fetch sessions kept at a time.
max.request.partition.size.limit int 2000 1.. medium read-only works
    Most partitions in one answer to DescribeTopicPartitions.
message.max.bytes int 1048588 0.. high cluster-wide works
    Largest batch of records, after compression.
metadata.log.dir string null - high read-only works
    Directory of the metadata log; the first of `log.dirs` where not given.
metadata.log.max.record.bytes.between.snapshots long 20971520 1.. high read-only works
    Bytes of metadata after which a snapshot is taken.
metadata.log.max.snapshot.interval.ms long 3600000 0.. high read-only works
    Time after which a snapshot of the metadata is taken.
metadata.log.segment.bytes int 1073741824 8388608.. high read-only works
    Largest size of a segment of the metadata log.
metadata.log.segment.ms long 604800000 - high read-only works
    Time after which a new segment of the metadata log begins.
metadata.max.idle.interval.ms int 500 0.. low read-only reported
    How often an idle controller writes an empty record; one node needs none.
metadata.max.retention.bytes long 104857600 - high read-only works
    Bytes of metadata log and snapshots beyond which the oldest go.
metadata.max.retention.ms long 604800000 - high read-only works
    Age beyond which metadata log and snapshots go.
metric.reporters list org.apache.kafka.common.metrics.JmxReporter - low cluster-wide reported
    Java classes that report metrics.
metrics.num.samples int 2 1.. low read-only reported
    Samples kept per metric.
metrics.recording.level string INFO - low read-only reported
    How detailed metrics are.
metrics.sample.window.ms long 30000 1.. low read-only reported
    Length of a sample.
min.insync.replicas int 1 1.. high cluster-wide works
    Replicas that must be in sync for a write with acks=all.
node.id int null 0.. high read-only works
    Number of this node, unique in the cluster.
num.io.threads int 8 1.. high cluster-wide reported
    Threads that serve requests in Kafka; here one event loop does.
num.network.threads int 3 1.. high cluster-wide reported
    Threads that serve sockets in Kafka; here one event loop does.
num.partitions int 1 1.. medium read-only works
    Partitions of a topic created without a number.
num.recovery.threads.per.data.dir int 2 1.. high cluster-wide reported
    Threads per directory for recovery at start and flushing at the end.
num.replica.alter.log.dirs.threads int null - high read-only reported
    Threads that move replicas between directories.
num.replica.fetchers int 1 1.. high cluster-wide reported
    Fetchers per source broker.
offset.metadata.max.bytes int 4096 - high read-only works
    Longest text that may be committed beside an offset.
offsets.commit.timeout.ms int 5000 1.. high read-only works
    How long a commit of offsets may wait for its replicas.
offsets.load.buffer.size int 5242880 1.. high read-only reported
    Bytes read at a time when a group's log is loaded.
offsets.retention.check.interval.ms long 600000 1.. high read-only works
    How often expired offsets are looked for.
offsets.retention.minutes int 10080 1.. high read-only works
    How long offsets outlive the last member of their group.
offsets.topic.compression.codec int 0 codec high read-only works
    Codec of the offsets topic by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions int 50 1.. high read-only works
    Partitions of the offsets topic; fixed once the topic exists.
offsets.topic.replication.factor short 3 1.. high read-only works
    Replicas of the offsets topic.
offsets.topic.segment.bytes int 104857600 1.. high read-only works
    Segment size of the offsets topic, kept small for quick loading.
process.roles list null non-empty:broker|controller high read-only works
    Roles of this node; served now: broker and controller in one.
producer.id.expiration.check.interval.ms int 600000 1.. low read-only works
    How often forgotten producers are looked for.
producer.id.expiration.ms int 86400000 1.. low cluster-wide works
    How long an idle producer's sequence numbers are remembered.
producer.purgatory.purge.interval.requests int 1000 - medium read-only reported
    Housekeeping of waiting requests in Kafka; here they leave at once.
queued.max.request.bytes long -1 - medium read-only works
    Bytes of requests held at a time, over all connections; beyond it reading pauses. -1 means 512 MiB.
queued.max.requests int 500 1.. high read-only reported
    Requests waiting for a thread in Kafka; here a connection has one in progress.
quota.window.num int 11 1.. low read-only reported
    Samples kept for client quotas.
quota.window.size.seconds int 1 1.. low read-only reported
    Length of such a sample.
remote.fetch.max.wait.ms int 500 1.. medium cluster-wide reported
    Tiered storage, which is not there: fetch max wait ms.
remote.list.offsets.request.timeout.ms long 30000 1.. medium cluster-wide reported
    Tiered storage, which is not there: list offsets request timeout ms.
remote.log.index.file.cache.total.size.bytes long 1073741824 1.. low cluster-wide reported
    Tiered storage, which is not there: index file cache total size bytes.
remote.log.manager.copier.thread.pool.size int 10 1.. medium cluster-wide reported
    Tiered storage, which is not there: manager copier thread pool size.
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1.. medium cluster-wide reported
    Tiered storage, which is not there: manager copy max bytes per second.
remote.log.manager.copy.quota.window.num int 11 1.. medium read-only reported
    Tiered storage, which is not there: manager copy quota window num.
remote.log.manager.copy.quota.window.size.seconds int 1 1.. medium read-only reported
    Tiered storage, which is not there: manager copy quota window size seconds.
remote.log.manager.expiration.thread.pool.size int 10 1.. medium cluster-wide reported
    Tiered storage, which is not there: manager expiration thread pool size.
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1.. medium cluster-wide reported
    Tiered storage, which is not there: manager fetch max bytes per second.
remote.log.manager.fetch.quota.window.num int 11 1.. medium read-only reported
    Tiered storage, which is not there: manager fetch quota window num.
remote.log.manager.fetch.quota.window.size.seconds int 1 1.. medium read-only reported
    Tiered storage, which is not there: manager fetch quota window size seconds.
remote.log.manager.follower.thread.pool.size int 2 1.. medium cluster-wide reported
    Tiered storage, which is not there: manager follower thread pool size.
remote.log.manager.task.interval.ms long 30000 1.. low read-only reported
    Tiered storage, which is not there: manager task interval ms.
remote.log.manager.thread.pool.size int 2 1.. medium read-only reported
    Tiered storage, which is not there: manager thread pool size.
remote.log.metadata.custom.metadata.max.bytes int 128 0.. low read-only reported
    Tiered storage, which is not there: metadata custom metadata max bytes.
remote.log.metadata.manager.class.name string org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager non-empty medium read-only reported
    Tiered storage, which is not there: metadata manager class name.
remote.log.metadata.manager.class.path string null - medium read-only reported
    Tiered storage, which is not there: metadata manager class path.
remote.log.metadata.manager.impl.prefix string rlmm.config. non-empty medium read-only reported
    Tiered storage, which is not there: metadata manager impl prefix.
remote.log.metadata.manager.listener.name string null non-empty medium read-only reported
    Tiered storage, which is not there: metadata manager listener name.
remote.log.reader.max.pending.tasks int 100 1.. medium read-only reported
    Tiered storage, which is not there: reader max pending tasks.
remote.log.reader.threads int 10 1.. medium cluster-wide reported
    Tiered storage, which is not there: reader threads.
remote.log.storage.manager.class.name string null non-empty medium read-only refused
    Java class that stores segments elsewhere.
remote.log.storage.manager.class.path string null - medium read-only reported
    Tiered storage, which is not there: storage manager class path.
remote.log.storage.manager.impl.prefix string rsm.config. non-empty medium read-only reported
    Tiered storage, which is not there: storage manager impl prefix.
remote.log.storage.system.enable boolean false - medium read-only refused
    Whether tiered storage is on.
replica.alter.log.dirs.io.max.bytes.per.second long 9223372036854775807 0.. medium cluster-wide reported
    Bytes a second moved between log directories.
replica.fetch.backoff.ms int 1000 0.. medium read-only reported
    Pause of a follower after an error.
replica.fetch.max.bytes int 1048576 0.. medium read-only reported
    Bytes per partition that a follower asks for.
replica.fetch.min.bytes int 1 - high read-only reported
    Bytes that a follower waits for.
replica.fetch.response.max.bytes int 10485760 0.. medium read-only reported
    Bytes per response that a follower asks for.
replica.fetch.wait.max.ms int 500 - high read-only reported
    How long a follower's fetch may wait.
replica.high.watermark.checkpoint.interval.ms long 5000 - high read-only works
    How often high watermarks are written down.
replica.lag.time.max.ms long 30000 - high read-only reported
    How long a follower may lag before it leaves the in-sync replicas.
replica.selector.class string null - medium read-only refused
    Java class that chooses the replica a consumer reads from.
replica.socket.receive.buffer.bytes int 65536 - high read-only reported
    Socket buffer of followers.
replica.socket.timeout.ms int 30000 - high read-only reported
    Socket timeout of followers.
replication.quota.window.num int 11 1.. low read-only reported
    Samples kept for replication quotas.
replication.quota.window.size.seconds int 1 1.. low read-only reported
    Length of such a sample.
request.timeout.ms int 30000 - high read-only reported
    How long a request to another node may take; there is no other node yet.
server.max.startup.time.ms long 9223372036854775807 0.. medium read-only reported
    How long a start may take.
share.coordinator.append.linger.ms int -1 -1.. medium read-only reported
    How long the share coordinator gathers records before it writes.
share.coordinator.cached.buffer.max.bytes int 1048588 524288.. medium cluster-wide reported
    Largest write buffer that the share coordinator keeps for reuse.
share.coordinator.load.buffer.size int 5242880 1.. high read-only reported
    Bytes read at a time when share state is loaded.
share.coordinator.snapshot.update.records.per.snapshot int 500 0..500 medium read-only reported
    Updates of share state between two snapshots.
share.coordinator.state.topic.compression.codec int 0 codec high read-only reported
    Codec of the share state topic by number.
share.coordinator.state.topic.min.isr short 2 1.. high read-only reported
    `min.insync.replicas` of the share state topic.
share.coordinator.state.topic.num.partitions int 50 1.. high read-only reported
    Partitions of the share state topic.
share.coordinator.state.topic.replication.factor short 3 1.. high read-only reported
    Replicas of the share state topic.
share.coordinator.state.topic.segment.bytes int 104857600 1.. high read-only reported
    Segment size of the share state topic.
share.coordinator.threads int 1 1.. medium read-only reported
    Threads of the share coordinator.
share.coordinator.write.timeout.ms int 5000 1.. high read-only reported
    How long a write of share state may wait for its replicas.
share.fetch.purgatory.purge.interval.requests int 1000 - medium read-only reported
    Housekeeping of waiting requests in Kafka; here they leave at once.
socket.connection.setup.timeout.max.ms long 30000 - medium read-only reported
    Longest wait for a connection to another node.
socket.connection.setup.timeout.ms long 10000 - medium read-only reported
    First wait for a connection to another node.
socket.listen.backlog.size int 50 1.. medium read-only works
    Connections that may wait to be accepted; 1,024 where not given.
socket.receive.buffer.bytes int 102400 - high read-only works
    Receive buffer of sockets in the kernel; left to the system where not given.
socket.request.max.bytes int 104857600 1.. high read-only works
    Largest request; a larger one ends the connection.
socket.send.buffer.bytes int 102400 - high read-only works
    Send buffer of sockets in the kernel; left to the system where not given.
telemetry.max.bytes int 1048576 1.. low read-only reported
    Largest push of client metrics.
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 1.. low read-only reported
    How often overdue transactions are looked for.
transaction.max.timeout.ms int 900000 1.. high read-only reported
    Longest timeout that a transaction may ask for.
transaction.partition.verification.enable boolean true - low cluster-wide reported
    Whether a write is checked to belong to an open transaction.
transaction.remove.expired.transaction.cleanup.interval.ms int 3600000 1.. low read-only reported
    How often expired transactional ids are looked for.
transaction.state.log.load.buffer.size int 5242880 1.. high read-only reported
    Bytes read at a time when the transaction log is loaded.
transaction.state.log.min.isr int 2 1.. high read-only reported
    `min.insync.replicas` of the transaction topic.
transaction.state.log.num.partitions int 50 1.. high read-only reported
    Partitions of the transaction topic.
transaction.state.log.replication.factor short 3 1.. high read-only reported
    Replicas of the transaction topic.
transaction.state.log.segment.bytes int 104857600 1.. high read-only reported
    Segment size of the transaction topic.
transaction.two.phase.commit.enable boolean false - low read-only refused
    Whether transactions may be part of a two-phase commit elsewhere.
transactional.id.expiration.ms int 604800000 1.. high read-only reported
    How long an idle transactional id is remembered.
unclean.leader.election.enable boolean false - high cluster-wide reported
    Whether a replica out of sync may lead when nobody else can, losing records.
unclean.leader.election.interval.ms long 300000 1.. medium read-only reported
    How often partitions without a leader are looked at again.
"""  # noqa: E501
