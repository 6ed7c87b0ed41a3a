// What Confluent's converters make of values. A question is one line of JSON with `converter` (avro or protobuf),
// `config` with settings or none, and either `json`, a value in the text of JsonConverter with schemas, or `schema` and
// `body`, a schema's text and a value in base64. The answer to the first is {"schema": text, "body": base64}, to the
// second {"json": text}; or {"error": class, "message": text}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.confluent.connect.avro.AvroConverter;
import io.confluent.connect.protobuf.ProtobufConverter;
import io.confluent.kafka.schemaregistry.ParsedSchema;
import io.confluent.kafka.schemaregistry.avro.AvroSchema;
import io.confluent.kafka.schemaregistry.avro.AvroSchemaProvider;
import io.confluent.kafka.schemaregistry.client.MockSchemaRegistryClient;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchemaProvider;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.Converter;

public final class ConverterOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonConverter TEXT = new JsonConverter();

    public static void main(String[] none) throws Exception {
        TEXT.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        answers.flush();
        Runtime.getRuntime().halt(0);
    }

    private static ObjectNode answer(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            boolean isAvro = question.get("converter").asText().equals("avro");
            MockSchemaRegistryClient registry = new MockSchemaRegistryClient(
                List.of(new AvroSchemaProvider(), new ProtobufSchemaProvider()));
            Converter converter = isAvro ? new AvroConverter(registry) : new ProtobufConverter(registry);
            Map<String, String> config = new HashMap<>(Map.of("schema.registry.url", "mock://oracle"));
            question.path("config").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
            converter.configure(config, false);
            if (question.has("json")) {
                byte[] text = question.get("json").asText().getBytes(StandardCharsets.UTF_8);
                SchemaAndValue data = TEXT.toConnectData("t", text);
                byte[] written = converter.fromConnectData("t", data.schema(), data.value());
                if (written == null) return answer.putNull("body");
                ByteBuffer buffer = ByteBuffer.wrap(written, 1, written.length - 1);
                ParsedSchema schema = registry.getSchemaById(buffer.getInt());
                byte[] body = new byte[buffer.remaining()];
                buffer.get(body);
                answer.put("schema", schema.canonicalString());
                return answer.put("body", Base64.getEncoder().encodeToString(body));
            }
            String text = question.get("schema").asText();
            int id = registry.register("t-value", isAvro ? new AvroSchema(text) : new ProtobufSchema(text));
            byte[] body = Base64.getDecoder().decode(question.get("body").asText());
            byte[] framed = ByteBuffer.allocate(body.length + 5).put((byte) 0).putInt(id).put(body).array();
            SchemaAndValue data = converter.toConnectData("t", framed);
            byte[] found = TEXT.fromConnectData("t", data.schema(), data.value());
            return answer.put("json", new String(found, StandardCharsets.UTF_8));
        } catch (Exception e) {
            answer.removeAll();
            Throwable cause = e.getCause() == null ? e : e.getCause();
            return answer.put("error", e.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
        }
    }
}
