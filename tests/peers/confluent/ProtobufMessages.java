import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema;
import io.confluent.kafka.serializers.protobuf.KafkaProtobufDeserializer;
import io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;

/**
 * Confluent's Protobuf serializers with a registry, whose URL is the argument. A line of JSON on standard input is
 * {"topic", "schema": text, "message": full name, "value"} to serialize, or {"topic", "data": Base64} to deserialize.
 * The answer on standard output is {"data": Base64}, or {"message": full name, "value"}.
 */
public final class ProtobufMessages {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    Map<String, Object> settings = Map.of("schema.registry.url", arguments[0]);
    KafkaProtobufSerializer<Message> serializer = new KafkaProtobufSerializer<>();
    KafkaProtobufDeserializer<Message> deserializer = new KafkaProtobufDeserializer<>();
    serializer.configure(settings, false);
    deserializer.configure(settings, false);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonNode question = mapper.readTree(line);
      ObjectNode answer = mapper.createObjectNode();
      String topic = question.get("topic").asText();
      if (question.has("data")) {
        Message message = deserializer.deserialize(topic, Base64.getDecoder().decode(question.get("data").asText()));
        answer.put("message", message.getDescriptorForType().getFullName());
        answer.set("value", mapper.readTree(JsonFormat.printer().preservingProtoFieldNames().print(message)));
      } else {
        ProtobufSchema schema = new ProtobufSchema(question.get("schema").asText());
        DynamicMessage.Builder message = schema.newMessageBuilder(question.get("message").asText());
        JsonFormat.parser().merge(question.get("value").toString(), message);
        answer.put("data", Base64.getEncoder().encodeToString(serializer.serialize(topic, message.build())));
      }
      System.out.println(mapper.writeValueAsString(answer));
    }
  }
}
