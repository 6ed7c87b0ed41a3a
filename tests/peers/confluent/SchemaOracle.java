import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.confluent.kafka.schemaregistry.ParsedSchema;
import io.confluent.kafka.schemaregistry.avro.AvroSchema;
import io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/**
 * What Confluent's own classes say about schemas: one JVM answers thousands of questions.
 *
 * A question is one line of JSON on standard input, an answer is one line on standard output, in order.
 * A question has "op" (valid, canonical, normalize, descriptor, compatible), "type" (AVRO, PROTOBUF), "schema" (the
 * text) and "references" (a list of objects with "name", "schema" and a "version" unless it is 1, in the order in which
 * they are parsed). "new": false parses as a registry does that loads its stored schemas. "compatible" also has
 * "previous", an object with "schema" and "references", which is the writer's. The answer has "result": true, a text, or
 * for "compatible" the list of messages; for Avro also "incompatibilities", lists of kind, path and message. An exception
 * is {"error": class, "message": text}.
 */
public final class SchemaOracle {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] none) throws Exception {
        MAPPER.getFactory().configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            ObjectNode answer = MAPPER.createObjectNode();
            try {
                answer(MAPPER.readTree(line), answer);
            } catch (Exception | LinkageError | StackOverflowError e) {
                answer.removeAll();
                answer.put("error", e.getClass().getName()).put("message", e.getMessage());
            }
            answers.println(MAPPER.writeValueAsString(answer));
        }
    }

    private static void answer(JsonNode question, ObjectNode answer) {
        String type = question.get("type").asText();
        ParsedSchema schema = parse(type, question, question.path("new").asBoolean(true));
        switch (question.get("op").asText()) {
            case "valid": schema.validate(); answer.put("result", true); break;
            case "canonical": answer.put("result", schema.canonicalString()); break;
            case "descriptor": answer.put("result", schema.formattedString("serialized")); break;
            case "normalize": answer.put("result", schema.normalize().canonicalString()); break;
            case "compatible": compare(schema, parse(type, question.get("previous"), false), answer); break;
            default: throw new IllegalArgumentException("unknown op");
        }
    }

    private static ParsedSchema parse(String type, JsonNode given, boolean isNew) {
        List<SchemaReference> references = new ArrayList<>();
        Map<String, String> resolved = new LinkedHashMap<>();
        for (JsonNode reference : given.path("references")) {
            String name = reference.get("name").asText();
            references.add(new SchemaReference(name, name, reference.path("version").asInt(1)));
            resolved.put(name, reference.get("schema").asText());
        }
        String text = given.get("schema").asText();
        if (type.equals("AVRO")) return new AvroSchema(text, references, resolved, null, isNew);
        if (type.equals("PROTOBUF")) return new ProtobufSchema(text, references, resolved, null, null);
        throw new IllegalArgumentException("unknown type");
    }

    private static void compare(ParsedSchema reader, ParsedSchema writer, ObjectNode answer) {
        ArrayNode messages = answer.putArray("result");
        for (String message : reader.isBackwardCompatible(writer)) messages.add(message);
        if (!(reader instanceof AvroSchema)) return;
        ArrayNode found = answer.putArray("incompatibilities");
        for (SchemaCompatibility.Incompatibility each : SchemaCompatibility.checkReaderWriterCompatibility(
                (Schema) reader.rawSchema(), (Schema) writer.rawSchema()).getResult().getIncompatibilities()) {
            found.addArray().add(each.getType().toString()).add(each.getLocation()).add(each.getMessage());
        }
    }
}
