// What Kafka Connect's own transformations and predicates make of records: one JVM answers thousands of questions.
//
// A question is one line of JSON: `type` (a class), `config` (texts by name), `topic`, `timestamp`, `sink` (whether the
// record is a SinkRecord at offset 7), `key` and `value` (texts of a JsonConverter with schemas, or null), `headers`
// (pairs of a name and such a text). The answer is one line of JSON of the same form, {"dropped": true}, {"test": true}
// for predicates, or {"error": class, "message": text}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

public final class TransformOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonConverter CONVERTER = new JsonConverter();

    public static void main(String[] none) throws Exception {
        CONVERTER.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        answers.flush();
        Runtime.getRuntime().halt(0);
    }

    @SuppressWarnings({"rawtypes", "unchecked"})
    private static ObjectNode answer(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            Map<String, Object> config = new HashMap<>();
            question.get("config").properties().forEach(each -> config.put(each.getKey(), each.getValue().asText()));
            Object made = Class.forName(question.get("type").asText()).getDeclaredConstructor().newInstance();
            if (made instanceof Predicate predicate) {
                predicate.configure(config);
                return answer.put("test", predicate.test(record(question)));
            }
            Transformation transformation = (Transformation) made;
            transformation.configure(config);
            ConnectRecord<?> changed = transformation.apply(record(question));
            if (changed == null) return answer.put("dropped", true);
            answer.put("topic", changed.topic());
            answer.put("partition", changed.kafkaPartition());
            answer.put("timestamp", changed.timestamp());
            answer.set("key", text(changed.keySchema(), changed.key()));
            answer.set("value", text(changed.valueSchema(), changed.value()));
            ArrayNode headers = answer.putArray("headers");
            for (Header header : changed.headers()) {
                headers.addArray().add(header.key()).add(text(header.schema(), header.value()));
            }
        } catch (Exception e) {
            answer.removeAll();
            answer.put("error", e.getClass().getSimpleName()).put("message", String.valueOf(e.getMessage()));
        }
        return answer;
    }

    private static ConnectRecord<?> record(JsonNode question) {
        SchemaAndValue key = data(question.get("key"));
        SchemaAndValue value = data(question.get("value"));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode pair : question.get("headers")) {
            headers.add(pair.get(0).asText(), data(pair.get(1)));
        }
        String topic = question.get("topic").asText();
        JsonNode time = question.get("timestamp");
        Long timestamp = time.isNull() ? null : time.asLong();
        if (question.get("sink").asBoolean()) {
            return new SinkRecord(topic, 3, key.schema(), key.value(), value.schema(), value.value(), 7, timestamp,
                TimestampType.CREATE_TIME, headers);
        }
        return new SourceRecord(Map.of(), Map.of(), topic, 3, key.schema(), key.value(), value.schema(), value.value(),
            timestamp, headers);
    }

    private static SchemaAndValue data(JsonNode text) {
        if (text.isNull()) return SchemaAndValue.NULL;
        return CONVERTER.toConnectData("t", text.asText().getBytes(StandardCharsets.UTF_8));
    }

    private static JsonNode text(Schema schema, Object value) {
        if (schema == null && value == null) return JSON.nullNode();
        byte[] bytes = CONVERTER.fromConnectData("t", schema, value);
        return JSON.getNodeFactory().textNode(new String(bytes, StandardCharsets.UTF_8));
    }
}
