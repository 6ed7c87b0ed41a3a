"""The steps of the comparison with a stock worker: each operation of the REST API, and many errors."""

from __future__ import annotations

from tests.connect.rest.script import JSON, Step

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
XFORM = "org.apache.kafka.connect.transforms"
STRING = "org.apache.kafka.connect.storage.StringConverter"
HEADERS = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
BIG = {f"extra.{i:04}": "x" * 50 for i in range(200)}


def source(name: str, directory: str, **more: str | None) -> dict[str, str | None]:
    """The configuration of a source that reads a file with two lines."""
    return {
        "name": name, "connector.class": SOURCE, "tasks.max": "1", "file": f"{directory}/in.txt", "topic": f"t-{name}",
        "key.converter": STRING, "value.converter": STRING, **more,
    }  # fmt: skip


def sink(name: str, directory: str, **more: str | None) -> dict[str, str | None]:
    """The configuration of a sink that reads the topic of the source `src`."""
    return {
        "name": name, "connector.class": SINK, "tasks.max": "2", "topics": "t-src", "file": f"{directory}/out.txt",
        "key.converter": STRING, "value.converter": STRING, **more,
    }  # fmt: skip


def nameless(config: dict[str, str | None]) -> dict[str, str | None]:
    """A configuration without a name."""
    return {name: value for name, value in config.items() if name != "name"}


def validations(d: str) -> list[Step]:
    """Requests for validation."""

    def validate(label: str, config: object, plugin: str = "FileStreamSource") -> Step:
        return Step(f"validate {label}", "PUT", f"/connector-plugins/{plugin}/config/validate", config)

    ok = source("v", d)
    return [
        validate("source", ok),
        validate("source by class", ok, SOURCE),
        validate("source by class with alias in the path", ok, "FileStreamSourceConnector"),
        validate("sink", sink("v", d), "FileStreamSink"),
        validate("short class", {**ok, "connector.class": "FileStreamSource"}),
        validate("other type", ok, "FileStreamSink"),
        validate("unknown plugin", ok, "Nothing"),
        validate("unknown class", {**ok, "connector.class": "Nothing"}, "Nothing"),
        validate("no class", nameless({"name": "v"})),
        validate("no name", nameless(ok)),
        validate("empty", {}),
        validate("name alone", {"connector.class": SOURCE}),
        validate("sink name alone", {"connector.class": SINK}, SINK),
        validate("empty name", {**ok, "name": ""}),
        validate("control character", {**ok, "name": "a\u0001b"}),
        validate("tasks.max text", {**ok, "tasks.max": "many"}),
        validate("tasks.max 0", {**ok, "tasks.max": "0"}),
        validate("tasks.max large", {**ok, "tasks.max": "99999999999"}),
        validate("many faults", {**ok, "tasks.max": "0", "errors.tolerance": "some", "tasks.max.enforce": "maybe",
                                 "errors.retry.timeout": "x", "config.action.reload": "never", "topic": ""}),
        validate("batch size text", {**ok, "batch.size": "x"}),
        validate("batch size 0", {**ok, "batch.size": "0"}),
        validate("null value", {**ok, "extra": None, "topic": None}),
        validate("number value", {**ok, "tasks.max": 1, "errors.log.enable": True}),
        validate("unknown settings", {**ok, "what": "ever"}),
        validate("exactly once", {**ok, "exactly.once.support": "required"}),
        validate("exactly once wrong", {**ok, "exactly.once.support": "maybe"}),
        validate("boundary connector", {**ok, "transaction.boundary": "connector"}),
        validate("boundary wrong", {**ok, "transaction.boundary": "never"}),
        validate("boundary interval", {**ok, "transaction.boundary": "Interval",
                                       "transaction.boundary.interval.ms": "-1"}),
        validate("offsets topic empty", {**ok, "offsets.storage.topic": ""}),
        validate("topic creation", {**ok, "topic.creation.default.partitions": "3",
                                    "topic.creation.default.replication.factor": "1", "topic.creation.groups": "a",
                                    "topic.creation.a.include": "x.*"}),
        validate("topic creation duplicate", {**ok, "topic.creation.groups": "a,a"}),
        validate("topic creation faults", {**ok, "topic.creation.default.partitions": "0",
                                           "topic.creation.default.replication.factor": "x"}),
        validate("sink without topics", {**sink("v", d), "topics": ""}, "FileStreamSink"),
        validate("sink with both", {**sink("v", d), "topics.regex": "t.*"}, "FileStreamSink"),
        validate("sink regex wrong", {**nameless(sink("v", d)), "name": "v", "topics": "", "topics.regex": "["},
                 "FileStreamSink"),
        validate("sink regex", {**sink("v", d), "topics": "", "topics.regex": "t-.*"}, "FileStreamSink"),
        validate("dead letters in topics", {**sink("v", d), "errors.deadletterqueue.topic.name": "t-src"},
                 "FileStreamSink"),
        validate("dead letters in regex", {**sink("v", d), "topics": "", "topics.regex": "t.*",
                                           "errors.deadletterqueue.topic.name": "tx"}, "FileStreamSink"),
        validate("dead letters", {**sink("v", d), "errors.deadletterqueue.topic.name": "dlq",
                                  "errors.deadletterqueue.topic.replication.factor": "x",
                                  "errors.deadletterqueue.context.headers.enable": "1"}, "FileStreamSink"),
        validate("topics twice", {**sink("v", d), "topics": "a,a"}, "FileStreamSink"),
        validate("converter unknown", {**ok, "value.converter": "no.such.Converter"}),
        validate("converter wrong", {**ok, "key.converter": SOURCE}),
        validate("converter empty", {**ok, "key.converter": ""}),
        validate("converter json", {**ok, "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                                    "value.converter.schemas.enable": "perhaps",
                                    "value.converter.schemas.cache.size": "7"}),
        validate("converter json alias", {**ok, "key.converter": "JsonConverter"}),
        validate("header converter", {**ok, "header.converter": HEADERS}),
        validate("producer override", {**ok, "producer.override.linger.ms": "5"}),
        validate("producer override wrong", {**ok, "producer.override.linger.ms": "x"}),
        validate("consumer override", {**sink("v", d), "consumer.override.max.poll.records": "5"}, "FileStreamSink"),
        validate("plugin version", {**ok, "connector.plugin.version": "4.3.0"}),
        validate("plugin version range", {**ok, "connector.plugin.version": "[4.0,5.0)"}),
        validate("plugin version other", {**ok, "connector.plugin.version": "1.0"}),
        validate("plugin version wrong", {**ok, "connector.plugin.version": "[[["}),
        validate("converter version", {**ok, "value.converter.plugin.version": "4.3.0"}),
        validate("transform", {**ok, "transforms": "a", "transforms.a.type": f"{XFORM}.HoistField$Value",
                               "transforms.a.field": "line"}),
        validate("transform field absent", {**ok, "transforms": "a", "transforms.a.type": f"{XFORM}.HoistField$Value"}),
        validate("transform type absent", {**ok, "transforms": "a"}),
        validate("transform type wrong", {**ok, "transforms": "a", "transforms.a.type": "no.such.Thing"}),
        validate("transform type abstract", {**ok, "transforms": "a", "transforms.a.type": f"{XFORM}.HoistField"}),
        validate("transform type connector", {**ok, "transforms": "a", "transforms.a.type": SOURCE}),
        validate("transform alias", {**ok, "transforms": "a", "transforms.a.type": "HoistField$Value",
                                     "transforms.a.field": "line"}),
        validate("transforms twice", {**ok, "transforms": "a,a", "transforms.a.type": f"{XFORM}.HoistField$Value",
                                      "transforms.a.field": "line"}),
        validate("transform with predicate", {
            **ok, "transforms": "a", "transforms.a.type": f"{XFORM}.Filter", "transforms.a.predicate": "p",
            "transforms.a.negate": "true", "predicates": "p",
            "predicates.p.type": f"{XFORM}.predicates.TopicNameMatches", "predicates.p.pattern": "x.*"}),
        validate("predicate pattern absent", {
            **ok, "predicates": "p", "predicates.p.type": f"{XFORM}.predicates.TopicNameMatches"}),
        validate("predicate pattern wrong", {
            **ok, "predicates": "p", "predicates.p.type": f"{XFORM}.predicates.TopicNameMatches",
            "predicates.p.pattern": "["}),
        validate("predicate unknown", {
            **ok, "transforms": "a", "transforms.a.type": f"{XFORM}.Filter", "transforms.a.predicate": "q"}),
        validate("negate alone", {
            **ok, "transforms": "a", "transforms.a.type": f"{XFORM}.Filter", "transforms.a.negate": "true"}),
        validate("negate wrong", {
            **ok, "transforms": "a", "transforms.a.type": f"{XFORM}.Filter", "transforms.a.predicate": "p",
            "transforms.a.negate": "x", "predicates": "p",
            "predicates.p.type": f"{XFORM}.predicates.RecordIsTombstone"}),
        validate("big", {**ok, **BIG}),
        validate("list body", []),
        validate("no body", None),
    ]  # fmt: skip


def reads() -> list[Step]:
    """Requests that read the worker's own state."""
    return [
        Step("root", "GET", "/"),
        Step("health", "GET", "/health"),
        Step("no connectors", "GET", "/connectors"),
        Step("no connectors, slash", "GET", "/connectors/"),
        Step("expand nothing", "GET", "/connectors?expand=status&expand=info"),
        Step("plugins", "GET", "/connector-plugins"),
        Step("all plugins", "GET", "/connector-plugins?connectorsOnly=false"),
        Step("plugins, wrong flag", "GET", "/connector-plugins?connectorsOnly=perhaps"),
        Step("config of a source", "GET", "/connector-plugins/FileStreamSource/config"),
        Step("config of a sink", "GET", f"/connector-plugins/{SINK}/config"),
        Step("config of a converter", "GET", "/connector-plugins/org.apache.kafka.connect.json.JsonConverter/config"),
        Step("config of a string converter", "GET", "/connector-plugins/StringConverter/config"),
        Step("config of a transform", "GET", f"/connector-plugins/{XFORM}.HoistField$Value/config"),
        Step("config of a predicate", "GET", "/connector-plugins/TopicNameMatches/config"),
        Step("config of nothing", "GET", "/connector-plugins/Nothing/config"),
        Step("config with a version", "GET", "/connector-plugins/FileStreamSource/config?version=4.3.0"),
        Step("config with a wrong version", "GET", "/connector-plugins/FileStreamSource/config?version=1.0"),
        Step("config with a range", "GET", "/connector-plugins/FileStreamSource/config?version=[4.0,5.0)"),
        Step("one plugin", "GET", "/connector-plugins/FileStreamSource"),
        Step("unknown path", "GET", "/what"),
        Step("unknown path below", "GET", "/connectors/a/b/c"),
        Step("head root", "HEAD", "/"),
        Step("head connectors", "HEAD", "/connectors"),
        Step("head unknown", "HEAD", "/connectors/nothing"),
        Step("options root", "OPTIONS", "/"),
        Step("options connectors", "OPTIONS", "/connectors"),
        Step("options config", "OPTIONS", "/connectors/x/config"),
        Step("options offsets", "OPTIONS", "/connectors/x/offsets"),
        Step("wrong method", "DELETE", "/connectors"),
        Step("wrong method on root", "POST", "/", {}),
        Step("wrong method below", "PATCH", "/connectors/x/status", {}),
        Step("accept text", "GET", "/connectors", headers={"Accept": "text/plain"}),
        Step("accept anything", "GET", "/connectors", headers={"Accept": "*/*"}),
        Step("accept html or json", "GET", "/connectors", headers={"Accept": "text/html,application/json;q=0.5"}),
        Step("tasks-config", "GET", "/connectors/x/tasks-config"),
        Step("swagger", "GET", "/openapi.json"),
    ]


def missing() -> list[Step]:
    """Operations on a connector that does not exist."""
    return [
        *[
            Step(f"missing {method} {path}", method, f"/connectors/nothing{path}", body)
            for method, path, body in [
                ("GET", "", None), ("GET", "/config", None), ("GET", "/status", None), ("GET", "/topics", None),
                ("PUT", "/topics/reset", None), ("GET", "/tasks", None), ("GET", "/tasks/0/status", None),
                ("POST", "/tasks/0/restart", None), ("POST", "/restart", None),
                ("POST", "/restart?includeTasks=true", None), ("POST", "/restart?onlyFailed=true", None),
                ("PUT", "/pause", None), ("PUT", "/resume", None), ("PUT", "/stop", None), ("DELETE", "", None),
                ("GET", "/offsets", None), ("DELETE", "/offsets", None),
                ("PATCH", "/offsets", {"offsets": [{"partition": {"filename": "x"}, "offset": {"position": 1}}]}),
                ("PATCH", "/config", {"tasks.max": "1"}), ("GET", "/tasks/x/status", None),
                ("POST", "/tasks/x/restart", None), ("GET", "/tasks/99999999999/status", None),
            ]
        ],
    ]  # fmt: skip


def faulty_bodies(d: str) -> list[Step]:
    """Bodies that are not what the operation needs."""
    ok = source("f", d)
    post = "/connectors"
    return [
        Step("post no body", "POST", post),
        Step("post empty object", "POST", post, {}),
        Step("post list", "POST", post, []),
        Step("post text", "POST", post, "text"),
        Step("post null", "POST", post, b"null"),
        Step("post broken", "POST", post, b'{"name": '),
        Step("post not json", "POST", post, b"name=x"),
        Step("post other type", "POST", post, {"name": "f", "config": ok}, headers={"Content-Type": "text/plain"}),
        Step("post no type", "POST", post, {"name": "f", "config": ok}, headers={}),
        Step("post unknown field", "POST", post, {"name": "f", "config": ok, "x": 1}),
        Step("post config list", "POST", post, {"name": "f", "config": []}),
        Step("post config null", "POST", post, {"name": "f", "config": None}),
        Step("post without config", "POST", post, {"name": "f"}),
        Step("post nested value", "POST", post, {"name": "f", "config": {**ok, "a": {"b": 1}}}),
        Step("post without class", "POST", post, {"name": "f", "config": {"name": "f"}}),
        Step("post unknown class", "POST", post, {"name": "f", "config": {**ok, "connector.class": "no.Such"}}),
        Step("post other name", "POST", post, {"name": "g", "config": ok}),
        Step("post null name", "POST", post, {"name": None, "config": nameless(ok)}),
        Step("post number name", "POST", post, {"name": [1], "config": nameless(ok)}),
        Step("post empty name", "POST", post, {"name": "", "config": nameless(ok)}),
        Step("post invalid", "POST", post, {"name": "f", "config": {**ok, "tasks.max": "0", "topic": ""}}),
        Step("post state wrong", "POST", post, {"name": "f", "config": ok, "initial_state": "SLEEPING"}),
        Step("post state number", "POST", post, {"name": "f", "config": ok, "initial_state": 3}),
        Step("put no body", "PUT", "/connectors/f/config"),
        Step("put list", "PUT", "/connectors/f/config", []),
        Step("put other name", "PUT", "/connectors/f/config", {**ok, "name": "g"}),
        Step("put invalid", "PUT", "/connectors/f/config", {**ok, "tasks.max": "-1"}),
        Step("put empty", "PUT", "/connectors/f/config", {}),
        Step("put null value", "PUT", "/connectors/f/config", {**ok, "x": None}),
        Step("offsets no body", "PATCH", "/connectors/f/offsets"),
        Step("offsets empty", "PATCH", "/connectors/f/offsets", {}),
        Step("offsets none", "PATCH", "/connectors/f/offsets", {"offsets": []}),
        Step("offsets wrong", "PATCH", "/connectors/f/offsets", {"offsets": 1}),
        Step("offsets unknown field", "PATCH", "/connectors/f/offsets", {"offset": []}),
        Step("no connector was created", "GET", "/connectors"),
    ]


def life(d: str) -> list[Step]:
    """The life of a source and a sink."""
    src, snk = source("src", d), sink("snk", d)
    path, sink_path = "/connectors/src", "/connectors/snk"
    position = {"partition": {"filename": f"{d}/in.txt"}, "offset": {"position": 4}}
    topic = {"kafka_topic": "t-src", "kafka_partition": 0}
    return [
        Step("create", "POST", "/connectors", {"name": "src", "config": nameless(src)}),
        Step("create again", "POST", "/connectors", {"name": "src", "config": src}),
        Step("source tasks", "GET", f"{path}/tasks", until="task.class"),
        Step("source task", "GET", f"{path}/tasks/0/status", until="RUNNING"),
        Step("source status", "GET", f"{path}/status", until='"tasks": [{"id": 0, "state": "RUNNING"'),
        Step("source topics", "GET", f"{path}/topics", until="t-src"),
        Step("source offsets", "GET", f"{path}/offsets", until="position"),
        Step("info", "GET", path),
        Step("config", "GET", f"{path}/config"),
        Step("list", "GET", "/connectors"),
        Step("expand status", "GET", "/connectors?expand=status"),
        Step("expand info", "GET", "/connectors?expand=info"),
        Step("expand both", "GET", "/connectors?expand=info&expand=status"),
        Step("expand unknown", "GET", "/connectors?expand=what"),
        Step("head info", "HEAD", path),
        Step("put same", "PUT", f"{path}/config", src),
        Step("put changed", "PUT", f"{path}/config", {**src, "batch.size": "10"}),
        Step("put changed config", "GET", f"{path}/config"),
        Step("patch", "PATCH", f"{path}/config", {"batch.size": None, "extra": "1"}),
        Step("patch name", "PATCH", f"{path}/config", {"name": "other"}),
        Step("patch invalid", "PATCH", f"{path}/config", {"tasks.max": "0"}),
        Step("patch empty", "PATCH", f"{path}/config", {}),
        Step("patch number", "PATCH", f"{path}/config", {"batch.size": 7}),
        Step("patch class away", "PATCH", f"{path}/config", {"connector.class": None}),
        Step("patch no body", "PATCH", f"{path}/config"),
        Step("running again", "GET", f"{path}/status", until='"tasks": [{"id": 0, "state": "RUNNING"'),
        Step("offsets while running", "PATCH", f"{path}/offsets", {"offsets": [position]}),
        Step("reset while running", "DELETE", f"{path}/offsets"),
        Step("restart", "POST", f"{path}/restart"),
        Step("running after restart", "GET", f"{path}/status", until='"tasks": [{"id": 0, "state": "RUNNING"'),
        Step("restart failed ones", "POST", f"{path}/restart?onlyFailed=true"),
        Step("restart failed with tasks", "POST", f"{path}/restart?onlyFailed=true&includeTasks=true"),
        Step("restart with tasks", "POST", f"{path}/restart?includeTasks=true"),
        Step("restart wrong flag", "POST", f"{path}/restart?includeTasks=perhaps"),
        Step("running after restart 2", "GET", f"{path}/status", until='"tasks": [{"id": 0, "state": "RUNNING"'),
        Step("restart task", "POST", f"{path}/tasks/0/restart"),
        Step("restart no task", "POST", f"{path}/tasks/7/restart"),
        Step("status of no task", "GET", f"{path}/tasks/7/status"),
        Step("restart negative task", "POST", f"{path}/tasks/-1/restart"),
        Step("pause", "PUT", f"{path}/pause"),
        Step("paused", "GET", f"{path}/status", until='"tasks": [{"id": 0, "state": "PAUSED"'),
        Step("offsets while paused", "DELETE", f"{path}/offsets"),
        Step("pause again", "PUT", f"{path}/pause"),
        Step("resume", "PUT", f"{path}/resume"),
        Step("resumed", "GET", f"{path}/status", until='"tasks": [{"id": 0, "state": "RUNNING"'),
        Step("sink", "PUT", f"{sink_path}/config", snk),
        Step("sink tasks", "GET", f"{sink_path}/tasks", until='"task": 1'),
        Step("sink status", "GET", f"{sink_path}/status", until='"id": 1, "state": "RUNNING"'),
        Step("sink offsets", "GET", f"{sink_path}/offsets", until="kafka_offset"),
        Step("sink topics", "GET", f"{sink_path}/topics", until="t-src"),
        Step("topics reset", "PUT", f"{path}/topics/reset"),
        Step("topics after reset", "GET", f"{path}/topics"),
        Step("stop", "PUT", f"{path}/stop"),
        Step("stopped", "GET", f"{path}/status", until='"STOPPED"'),
        Step("stopped tasks", "GET", f"{path}/tasks", until="[]"),
        Step("stop again", "PUT", f"{path}/stop"),
        Step("info stopped", "GET", path),
        Step("alter offsets", "PATCH", f"{path}/offsets", {"offsets": [position]}),
        Step("altered", "GET", f"{path}/offsets", until='"position": 4'),
        Step("alter without partition", "PATCH", f"{path}/offsets", {"offsets": [{"offset": {"position": 1}}]}),
        Step("alter unknown partition", "PATCH", f"{path}/offsets",
             {"offsets": [{"partition": {"x": "y"}, "offset": {"position": 1}}]}),
        Step("alter wrong offset", "PATCH", f"{path}/offsets",
             {"offsets": [{**position, "offset": {"position": "x"}}]}),
        Step("alter duplicate", "PATCH", f"{path}/offsets", {"offsets": [position, position]}),
        Step("alter to null", "PATCH", f"{path}/offsets", {"offsets": [{**position, "offset": None}]}),
        Step("no offset", "GET", f"{path}/offsets", until='"offsets": []'),
        Step("reset offsets", "DELETE", f"{path}/offsets"),
        Step("stop sink", "PUT", f"{sink_path}/stop"),
        Step("sink stopped", "GET", f"{sink_path}/status", until='"STOPPED"'),
        Step("sink stopped tasks", "GET", f"{sink_path}/tasks", until="[]"),
        Step("alter sink offsets", "PATCH", f"{sink_path}/offsets",
             {"offsets": [{"partition": topic, "offset": {"kafka_offset": 1}}]}, until="200"),
        Step("sink altered", "GET", f"{sink_path}/offsets", until='"kafka_offset": 1'),
        Step("alter sink wrong partition", "PATCH", f"{sink_path}/offsets",
             {"offsets": [{"partition": {"x": 1}, "offset": {"kafka_offset": 1}}]}),
        Step("alter sink text partition", "PATCH", f"{sink_path}/offsets",
             {"offsets": [{"partition": {**topic, "kafka_partition": "x"}, "offset": {"kafka_offset": 1}}]}),
        Step("alter sink wrong offset", "PATCH", f"{sink_path}/offsets",
             {"offsets": [{"partition": topic, "offset": {"kafka_offset": "x"}}]}),
        Step("alter sink no offset", "PATCH", f"{sink_path}/offsets",
             {"offsets": [{"partition": topic, "offset": {}}]}),
        Step("reset sink offsets", "DELETE", f"{sink_path}/offsets"),
        Step("sink without offsets", "GET", f"{sink_path}/offsets", until='"offsets": []'),
        Step("resume stopped", "PUT", f"{path}/resume"),
        Step("resumed from stop", "GET", f"{path}/status", until='"tasks": [{"id": 0, "state": "RUNNING"'),
        Step("create paused", "POST", "/connectors",
             {"name": "later", "config": source("later", d), "initial_state": "paused"}),
        Step("status paused", "GET", "/connectors/later/status", until="PAUSED"),
        Step("create stopped", "POST", "/connectors",
             {"name": "never", "config": source("never", d), "initial_state": "STOPPED"}),
        Step("status stopped", "GET", "/connectors/never/status", until="STOPPED"),
        Step("create running", "POST", "/connectors",
             {"name": " now ", "config": nameless(source("now", d)), "initial_state": "RUNNING"}),
        Step("status running", "GET", "/connectors/now/status", until='"tasks": [{"id": 0, "state": "RUNNING"'),
        Step("strange name", "PUT", "/connectors/a%20b%3Fc/config", source("a b?c", d)),
        Step("strange info", "GET", "/connectors/a%20b%3Fc", until='"task": 0'),
        Step("strange delete", "DELETE", "/connectors/a%20b%3Fc"),
        Step("failing", "PUT", "/connectors/bad/config", source("bad", d, file="/nowhere/at/all", topic="x")),
        Step("unicode name", "PUT", "/connectors/%C3%A4%E2%82%AC/config", source("ä€", d)),
        Step("unicode status", "GET", "/connectors/%C3%A4%E2%82%AC/status", until="RUNNING"),
        Step("unicode delete", "DELETE", "/connectors/%C3%A4%E2%82%AC"),
        *[Step(f"delete {name}", "DELETE", f"/connectors/{name}") for name in
          ("src", "snk", "later", "never", "now", "bad")],
        Step("delete again", "DELETE", "/connectors/src"),
        Step("all deleted", "GET", "/connectors", until="[]"),
        Step("status of deleted", "GET", f"{path}/status", until="404"),
    ]  # fmt: skip


def loggers() -> list[Step]:
    """The levels of loggers."""
    name = "/admin/loggers/org.apache.kafka.connect.runtime.WorkerSinkTask"
    return [
        Step("loggers", "GET", "/admin/loggers"),
        Step("root logger", "GET", "/admin/loggers/root"),
        Step("set logger", "PUT", name, {"level": "DEBUG"}),
        Step("logger", "GET", name),
        Step("set logger lower case", "PUT", name, {"level": "warn"}),
        Step("set logger trace", "PUT", name, {"level": "TRACE"}),
        Step("logger trace", "GET", name),
        Step("set cluster", "PUT", f"{name}?scope=cluster", {"level": "INFO"}),
        Step("set worker", "PUT", f"{name}?scope=worker", {"level": "ERROR"}),
        Step("set what", "PUT", f"{name}?scope=what", {"level": "ERROR"}),
        Step("no logger", "GET", "/admin/loggers/no.such.logger"),
        Step("set no level", "PUT", name, {}),
        Step("set wrong level", "PUT", name, {"level": "LOUD"}),
        Step("set number level", "PUT", name, {"level": 3}),
        Step("set list", "PUT", name, []),
        Step("set no body", "PUT", name),
        Step("set new logger", "PUT", "/admin/loggers/my.own", {"level": "INFO"}),
    ]


def every_step(directory: str) -> list[Step]:
    """All steps, for a worker that has no connectors. The directory has the file in.txt."""
    return [*reads(), *missing(), *faulty_bodies(directory), *validations(directory), *life(directory), *loggers()]


__all__ = ["JSON", "every_step"]
