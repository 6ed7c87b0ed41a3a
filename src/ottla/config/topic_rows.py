"""Settings of a topic, one row each, in the form of `broker_rows.py` without the update mode: all are dynamic."""

ROWS = """\
cleanup.policy list delete compact|delete medium works
    What happens to old records: delete, compact, both; empty keeps them for ever.
compression.gzip.level int -1 1..9|-1 medium works
    Level where `compression.type` is gzip; -1 is the codec's own default.
compression.lz4.level int 9 1..17 medium works
    Level where `compression.type` is lz4.
compression.type string producer uncompressed|zstd|lz4|snappy|gzip|producer medium works
    Codec in which batches are kept; `producer` keeps what the producer chose.
compression.zstd.level int 3 -131072..22 medium works
    Level where `compression.type` is zstd.
delete.retention.ms long 86400000 0.. medium works
    How long tombstones and transaction markers stay after compaction.
file.delete.delay.ms long 60000 0.. medium works
    How long a deleted file stays on disk under another name.
flush.messages long 9223372036854775807 1.. medium works
    Records after which the partition is forced to disk.
flush.ms long 9223372036854775807 0.. medium works
    Time after which the partition is forced to disk.
follower.replication.throttled.replicas list "" throttled-replicas medium reported
    Replicas whose followers are throttled, as `partition:broker,...` or `*`.
index.interval.bytes int 4096 0.. medium works
    Bytes of records between two index entries.
leader.replication.throttled.replicas list "" throttled-replicas medium reported
    Replicas whose leaders are throttled, as `partition:broker,...` or `*`.
local.retention.bytes long -2 -2.. medium reported
    Bytes kept on local disk beside tiered storage; -2 means `retention.bytes`.
local.retention.ms long -2 -2.. medium reported
    Time kept on local disk beside tiered storage; -2 means `retention.ms`.
max.compaction.lag.ms long 9223372036854775807 1.. medium works
    After how long a record must have been compacted.
max.message.bytes int 1048588 0.. medium works
    Largest batch of records, after compression.
message.timestamp.after.max.ms long 3600000 0.. medium works
    How far ahead of the broker's clock a record's timestamp may be.
message.timestamp.before.max.ms long 9223372036854775807 0.. medium works
    How far behind the broker's clock a record's timestamp may be.
message.timestamp.type string CreateTime CreateTime|LogAppendTime medium works
    Whether a record keeps its producer's time or takes the time of its append.
min.cleanable.dirty.ratio double 0.5 0..1 medium works
    Share of the log that must be uncompacted before it is compacted.
min.compaction.lag.ms long 0 0.. medium works
    How long a record stays uncompacted at least.
min.insync.replicas int 1 1.. medium works
    Replicas that must be in sync for a write with acks=all.
preallocate boolean false - medium reported
    Whether segment files are allocated at full size.
remote.log.copy.disable boolean false - medium reported
    Stops copying to tiered storage.
remote.log.delete.on.disable boolean false - medium reported
    Whether turning tiered storage off deletes what it holds.
remote.storage.enable boolean false - medium refused
    Whether the topic uses tiered storage.
retention.bytes long -1 - medium works
    Bytes per partition beyond which old segments go; -1 keeps all.
retention.ms long 604800000 -1.. medium works
    Age beyond which old segments go; -1 keeps all.
segment.bytes int 1073741824 1048576.. medium works
    Largest size of a segment file.
segment.index.bytes int 10485760 4.. medium works
    Largest size of an index file.
segment.jitter.ms long 0 0.. medium works
    Random time taken off `segment.ms`, so that segments do not roll all at once.
segment.ms long 604800000 1.. medium works
    Time after which a new segment begins.
unclean.leader.election.enable boolean false - medium reported
    Whether a replica out of sync may lead when nobody else can, losing records.
"""
