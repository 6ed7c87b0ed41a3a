import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Confluent's Avro serializers in Kafka's clients. Arguments: produce or consume, the brokers, the registry, the topic,
 * and for produce the schema, of a record with the fields id and note. Three records have the ids 0, 1, 2; an odd one
 * has no note. consume prints the values of three records as JSON, one on each line.
 */
public class SerializerStory {
  public static void main(String[] arguments) {
    String brokers = arguments[1], registry = arguments[2], topic = arguments[3];
    if (arguments[0].equals("produce")) produce(brokers, registry, topic, new Schema.Parser().parse(arguments[4]));
    else consume(brokers, registry, topic);
  }

  private static void produce(String brokers, String registry, String topic, Schema schema) {
    Map<String, Object> settings =
        Map.of(
            "bootstrap.servers", brokers, "schema.registry.url", registry,
            "key.serializer", KafkaAvroSerializer.class, "value.serializer", KafkaAvroSerializer.class);
    try (KafkaProducer<Object, Object> producer = new KafkaProducer<>(settings)) {
      for (long id = 0; id < 3; id++) {
        GenericRecord value = new GenericData.Record(schema);
        value.put("id", id);
        value.put("note", id % 2 == 0 ? "note " + id : null);
        producer.send(new ProducerRecord<>(topic, "key " + id, value));
      }
    }
  }

  private static void consume(String brokers, String registry, String topic) {
    Map<String, Object> settings =
        Map.of(
            "bootstrap.servers", brokers, "schema.registry.url", registry, "auto.offset.reset", "earliest",
            "key.deserializer", KafkaAvroDeserializer.class, "value.deserializer", KafkaAvroDeserializer.class);
    try (KafkaConsumer<Object, Object> consumer = new KafkaConsumer<>(settings)) {
      consumer.assign(List.of(new TopicPartition(topic, 0)));
      int count = 0;
      for (int attempt = 0; attempt < 60 && count < 3; attempt++) {
        for (var record : consumer.poll(Duration.ofSeconds(1))) {
          System.out.println(record.key() + " " + record.value());
          count++;
        }
      }
    }
  }
}
