"""The metrics of a node: name, type, labels, meaning. Tests compare them with docs/metrics.md and deploy/metrics.

The JMX exporter makes these names of Kafka's beans, with the rules that Strimzi ships. Names with `ottla_` are Ottla's
own.
"""

from __future__ import annotations

from typing import Final

from ottla.metrics.family import COUNTER, GAUGE, HISTOGRAM, SUMMARY, Families

FAMILIES: Final = Families()
"""Every metric by its name, in the order of a scrape."""
_family = FAMILIES.add

# Process
PROCESS_CPU = _family("process_cpu_seconds_total", COUNTER, "CPU time of the process, in all threads.")
PROCESS_MEMORY = _family("process_resident_memory_bytes", GAUGE, "Resident memory of the process.")
PROCESS_FDS = _family("process_open_fds", GAUGE, "Open file descriptors.")
PROCESS_MAX_FDS = _family("process_max_fds", GAUGE, "Limit of open file descriptors.")
PROCESS_START = _family("process_start_time_seconds", GAUGE, "When the process started, since the Unix epoch.")
INFO = _family("ottla_build_info", GAUGE, "Always 1; the version and the node in its labels.", "version", "node_id")

# The broker and its event loop
BROKER_STATE = _family(
    "kafka_server_kafkaserver_brokerstate", GAUGE, "State of the broker: 1 starting, 3 running, 6 stopping."
)
HANDLER_IDLE = _family(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    GAUGE,
    "Idle share of the thread that handles requests, from 0 to 1, over the last samples.",
)
NETWORK_IDLE = _family(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    GAUGE,
    "The same value: one thread does both.",
)
LOOP_DELAY = _family(
    "ottla_eventloop_delay_seconds", HISTOGRAM, "How late the event loop runs a timer that is due.", "le"
)
LOOP_DELAY_MAX = _family(
    "ottla_eventloop_delay_max_seconds", GAUGE, "The greatest delay of the last one to two minutes."
)
UNFINISHED = _family("ottla_worker_unfinished_tasks", GAUGE, "Requests and tasks that run in slices and wait for time.")
SCRAPE_SECONDS = _family("ottla_metrics_scrape_seconds", GAUGE, "How long the previous scrape took.")

# Network
CONNECTIONS = _family(
    "kafka_server_socket_server_metrics_connection_count",
    GAUGE,
    "Open connections.",
    "listener",
    "networkProcessor",
)
REQUESTS = _family("kafka_network_requestmetrics_requests_total", COUNTER, "Requests, by API.", "request")
TOTAL_TIME = _family(
    "kafka_network_requestmetrics_totaltimems",
    SUMMARY,
    "From the start of a request until its response is complete, without the pause for a quota. Milliseconds.",
    "request",
    "quantile",
)
LOCAL_TIME = _family(
    "kafka_network_requestmetrics_localtimems",
    SUMMARY,
    "Time in which a request was decoded and handled at once. Milliseconds.",
    "request",
    "quantile",
)
REMOTE_TIME = _family(
    "kafka_network_requestmetrics_remotetimems",
    SUMMARY,
    "Time in which a request waited: for records, followers, members, the disk, or its next slice. Milliseconds.",
    "request",
    "quantile",
)
THROTTLE_TIME = _family(
    "kafka_network_requestmetrics_throttletimems",
    SUMMARY,
    "Pause of a connection after a response, because of a quota. Milliseconds.",
    "request",
    "quantile",
)

# Clients
_CLIENT: Final = ("user", "client_id")
CLIENT_PRODUCED = _family(
    "ottla_client_produced_bytes_total", COUNTER, "Bytes of the Produce requests of a client.", *_CLIENT
)
CLIENT_FETCHED = _family(
    "ottla_client_fetched_bytes_total", COUNTER, "Bytes of the responses to Fetch requests of a client.", *_CLIENT
)
CLIENT_REQUEST_TIME = _family(
    "ottla_client_request_seconds_total",
    COUNTER,
    "Local time of all requests of a client; busy APIs are sampled.",
    *_CLIENT,
)
CLIENT_THROTTLED = _family(
    "ottla_client_throttled_seconds_total", COUNTER, "Pauses of a client because of its quotas.", *_CLIENT
)
CLIENT_CONNECTIONS = _family("ottla_client_connections", GAUGE, "Open connections of a client.", *_CLIENT)
PRODUCE_RATE = _family(
    "kafka_server_produce_byte_rate", GAUGE, "Bytes per second of Produce requests, of the last 10 seconds.", *_CLIENT
)
FETCH_RATE = _family(
    "kafka_server_fetch_byte_rate", GAUGE, "Bytes per second of Fetch responses, of the last 10 seconds.", *_CLIENT
)
REQUEST_SHARE = _family(
    "kafka_server_request_request_time",
    GAUGE,
    "Share of the node's event loop that a client used in the last 10 seconds, from 0 to 100.",
    *_CLIENT,
)
PRODUCE_THROTTLE = _family(
    "kafka_server_produce_throttle_time",
    GAUGE,
    "Average pause after a throttled Produce request, of the last 10 seconds. Milliseconds.",
    *_CLIENT,
)
FETCH_THROTTLE = _family(
    "kafka_server_fetch_throttle_time", GAUGE, "The same after a throttled Fetch request.", *_CLIENT
)
REQUEST_THROTTLE = _family(
    "kafka_server_request_throttle_time", GAUGE, "The same after other throttled requests.", *_CLIENT
)

# Topics
MESSAGES_IN = _family(
    "kafka_server_brokertopicmetrics_messagesin_total", COUNTER, "Records that clients appended.", "topic"
)
BYTES_IN = _family("kafka_server_brokertopicmetrics_bytesin_total", COUNTER, "Bytes that clients appended.", "topic")
BYTES_OUT = _family("kafka_server_brokertopicmetrics_bytesout_total", COUNTER, "Bytes that clients fetched.", "topic")
REPLICATION_IN = _family(
    "kafka_server_brokertopicmetrics_replicationbytesin_total", COUNTER, "Bytes fetched from leaders.", "topic"
)
REPLICATION_OUT = _family(
    "kafka_server_brokertopicmetrics_replicationbytesout_total", COUNTER, "Bytes that followers fetched.", "topic"
)
PRODUCED_BATCHES = _family(
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    COUNTER,
    "Batches that clients and coordinators appended: one for each partition of a request.",
    "topic",
)
FAILED_BATCHES = _family(
    "kafka_server_brokertopicmetrics_failedproducerequests_total", COUNTER, "Batches that were not appended.", "topic"
)
FETCHED = _family(
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    COUNTER,
    "Partitions in responses to fetches of clients that had records or an error.",
    "topic",
)
FAILED_FETCHES = _family(
    "kafka_server_brokertopicmetrics_failedfetchrequests_total", COUNTER, "Those with an error.", "topic"
)

# Partitions
LOG_SIZE = _family("kafka_log_log_size", GAUGE, "Bytes of the log's segments.", "topic", "partition")
LOG_START = _family("kafka_log_log_logstartoffset", GAUGE, "First offset of the log.", "topic", "partition")
LOG_END = _family("kafka_log_log_logendoffset", GAUGE, "Offset of the next record.", "topic", "partition")
LOG_SEGMENTS = _family("kafka_log_log_numlogsegments", GAUGE, "Segments of the log.", "topic", "partition")
PARTITION_UNDER_REPLICATED = _family(
    "kafka_cluster_partition_underreplicated",
    GAUGE,
    "1 if this node leads the partition and a replica is not in sync.",
    "topic",
    "partition",
)
PARTITION_UNDER_MIN_ISR = _family(
    "kafka_cluster_partition_underminisr",
    GAUGE,
    "1 if fewer replicas than min.insync.replicas are in sync.",
    "topic",
    "partition",
)
PARTITION_AT_MIN_ISR = _family(
    "kafka_cluster_partition_atminisr",
    GAUGE,
    "1 if exactly min.insync.replicas replicas are in sync.",
    "topic",
    "partition",
)
PARTITION_ISR = _family(
    "kafka_cluster_partition_insyncreplicascount",
    GAUGE,
    "Replicas in sync, as the leader sees it.",
    "topic",
    "partition",
)
PARTITION_REPLICAS = _family(
    "kafka_cluster_partition_replicascount",
    GAUGE,
    "Replicas of a partition that this node leads.",
    "topic",
    "partition",
)
PARTITION_LSO_LAG = _family(
    "kafka_cluster_partition_laststableoffsetlag",
    GAUGE,
    "Committed records behind the first open transaction.",
    "topic",
    "partition",
)
OPEN_TRANSACTION = _family(
    "ottla_partition_open_transaction_seconds",
    GAUGE,
    "For how long scrapes of this node have seen the first open transaction; no sample without one.",
    "topic",
    "partition",
)

# Replication
LEADERS = _family("kafka_server_replicamanager_leadercount", GAUGE, "Partitions that this node leads.")
PARTITIONS = _family(
    "kafka_server_replicamanager_partitioncount", GAUGE, "Partitions with an open replica on this node."
)
UNDER_REPLICATED = _family(
    "kafka_server_replicamanager_underreplicatedpartitions",
    GAUGE,
    "Partitions that this node leads, and that have a replica that is not in sync.",
)
UNDER_MIN_ISR = _family(
    "kafka_server_replicamanager_underminisrpartitioncount",
    GAUGE,
    "Partitions that this node leads, and that have fewer replicas in sync than min.insync.replicas.",
)
AT_MIN_ISR = _family(
    "kafka_server_replicamanager_atminisrpartitioncount",
    GAUGE,
    "Partitions that this node leads, and that have exactly min.insync.replicas replicas in sync.",
)
OFFLINE_REPLICAS = _family(
    "kafka_server_replicamanager_offlinereplicacount",
    GAUGE,
    "Replicas of this node that it cannot serve: their log directory failed, or they are not open yet.",
)
REASSIGNING = _family(
    "kafka_server_replicamanager_reassigningpartitions", GAUGE, "Partitions that this node leads, and that move."
)

# Log directories
DIRECTORY_OFFLINE = _family(
    "kafka_log_logmanager_logdirectoryoffline", GAUGE, "1 if the log directory failed.", "logDirectory"
)
OFFLINE_DIRECTORIES = _family("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, "Log directories that failed.")
DIRECTORY_TOTAL = _family("ottla_log_directory_total_bytes", GAUGE, "Size of the volume of a directory.", "directory")
DIRECTORY_USABLE = _family("ottla_log_directory_usable_bytes", GAUGE, "Free bytes of that volume.", "directory")

# The controller
ACTIVE_CONTROLLER = _family(
    "kafka_controller_kafkacontroller_activecontrollercount", GAUGE, "1 if this node is the active controller."
)
ACTIVE_BROKERS = _family(
    "kafka_controller_kafkacontroller_activebrokercount", GAUGE, "Brokers that are not fenced; 0 on other nodes."
)
FENCED_BROKERS = _family(
    "kafka_controller_kafkacontroller_fencedbrokercount", GAUGE, "Registered brokers that are fenced; 0 on other nodes."
)
GLOBAL_TOPICS = _family("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, "Topics; 0 on other nodes.")
GLOBAL_PARTITIONS = _family(
    "kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, "Partitions; 0 on other nodes."
)
OFFLINE_PARTITIONS = _family(
    "kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE, "Partitions without a leader; 0 on other nodes."
)
PREFERRED_IMBALANCE = _family(
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    GAUGE,
    "Partitions that another replica than the preferred one leads; 0 on other nodes.",
)
LAST_APPLIED = _family(
    "kafka_controller_kafkacontroller_lastappliedrecordoffset",
    GAUGE,
    "Offset of the last metadata record in this node's image.",
)

# The quorum
RAFT_LEADER = _family("kafka_server_raftmetrics_current_leader", GAUGE, "Id of the quorum's leader; -1: not known.")
RAFT_EPOCH = _family("kafka_server_raftmetrics_current_epoch", GAUGE, "Epoch of the quorum.")
RAFT_VOTE = _family("kafka_server_raftmetrics_current_vote", GAUGE, "The node's vote in the epoch; -1: no vote.")
RAFT_STATE = _family(
    "kafka_server_raftmetrics_current_state",
    GAUGE,
    "Always 1; its label is the role of this node in the quorum.",
    "current_state",
)
RAFT_HIGH_WATERMARK = _family(
    "kafka_server_raftmetrics_high_watermark", GAUGE, "High watermark of the metadata log; -1: not known."
)
RAFT_END = _family("kafka_server_raftmetrics_log_end_offset", GAUGE, "End of the metadata log on this node.")
RAFT_VOTERS = _family("kafka_server_raftmetrics_number_of_voters", GAUGE, "Voters of the quorum.")

# Coordinators: those whose partition this node leads
GROUPS = _family(
    "kafka_server_group_coordinator_metrics_group_count", GAUGE, "Groups of this node, by their type.", "protocol"
)
CLASSIC_GROUPS = _family("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE, "Classic groups.")
GROUP_OFFSETS = _family("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE, "Committed offsets.")
GROUPS_EMPTY = _family(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsempty", GAUGE, "Classic groups without members."
)
GROUPS_PREPARING = _family(
    "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
    GAUGE,
    "Classic groups that wait for their members to join.",
)
GROUPS_COMPLETING = _family(
    "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
    GAUGE,
    "Classic groups that wait for the assignment of their leader.",
)
GROUPS_STABLE = _family(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsstable", GAUGE, "Classic groups that are stable."
)
GROUPS_DEAD = _family(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsdead", GAUGE, "Classic groups that are dead."
)
TRANSACTIONS = _family(
    "ottla_transaction_coordinator_transactional_ids", GAUGE, "Transactional ids of this node, by state.", "state"
)
SHARE_STATES = _family(
    "ottla_share_coordinator_states",
    GAUGE,
    "Partitions of share groups whose state is in this node's share coordinator.",
)

# Lag of groups, from the coordinator's node
GROUP_OFFSET = _family(
    "kafka_consumergroup_current_offset",
    GAUGE,
    "Committed offset of a group.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_LAG = _family(
    "kafka_consumergroup_lag",
    GAUGE,
    "Records between a committed offset and the high watermark.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_LAG_SUM = _family(
    "kafka_consumergroup_lag_sum", GAUGE, "Lag of a group in all partitions of a topic.", "consumergroup", "topic"
)
GROUP_LAG_SECONDS = _family(
    "kafka_consumergroup_lag_seconds",
    GAUGE,
    "Age of the batch with the first unread record; 0 without a lag.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_MEMBERS = _family(
    "kafka_consumergroup_members", GAUGE, "Members of a group that has committed offsets.", "consumergroup"
)
GROUP_OFFSETS_DROPPED = _family(
    "ottla_metrics_dropped_group_offsets", GAUGE, "Committed offsets above the limit of a scrape, without a lag."
)

# Mirrors: copies that this node leads
MIRROR_PARTITIONS = _family(
    "ottla_mirror_partitions", GAUGE, "Partitions of a mirror that this node leads, by state.", "mirror", "state"
)
MIRROR_LAG = _family(
    "ottla_mirror_lag_records", GAUGE, "Records of the source that these partitions do not have.", "mirror"
)
MIRROR_UNANSWERED = _family(
    "ottla_mirror_unanswered_partitions",
    GAUGE,
    "Copied partitions whose lag is unknown, since the source has not answered.",
    "mirror",
)
MIRROR_ANSWER_AGE = _family(
    "ottla_mirror_answer_age_seconds",
    GAUGE,
    "How long ago the source answered the partition that waits longest.",
    "mirror",
)
MIRROR_TRUNCATED = _family(
    "ottla_mirror_truncated_records",
    GAUGE,
    "Records that were dropped because the source does not have them, since this node leads the partitions.",
    "mirror",
)
MIRROR_SKIPPED = _family(
    "ottla_mirror_skipped_offsets",
    GAUGE,
    "Offsets that the source had deleted before they were copied, since this node leads the partitions.",
    "mirror",
)
MIRROR_PROBLEMS = _family(
    "ottla_mirror_problems", GAUGE, "Problems of a mirror on this node, which `ottla mirror why` names.", "mirror"
)
MIRROR_GROUPS_AGE = _family(
    "ottla_mirror_groups_age_seconds",
    GAUGE,
    "How long ago all committed offsets of groups were copied; no sample before.",
    "mirror",
)

# Client metrics (KIP-714)
CLIENT_INSTANCES = _family(
    "kafka_server_client_metrics_instance_count", GAUGE, "Client instances that asked for metrics subscriptions."
)
CLIENT_PUSHES = _family(
    "ottla_client_telemetry_pushes_total", COUNTER, "Pushes of clients' metrics, by their error; NONE: stored.", "error"
)
CLIENT_INFO = _family(
    "ottla_client_telemetry_info",
    GAUGE,
    "Always 1; a client that pushed metrics, in its labels.",
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "principal",
)
CLIENT_SERIES_DROPPED = _family(
    "ottla_client_telemetry_dropped_series_total", COUNTER, "Values of clients that exceeded a limit of this node."
)
