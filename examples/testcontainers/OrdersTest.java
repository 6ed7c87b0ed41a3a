import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.testcontainers.junit.jupiter.Container;
import org.testcontainers.junit.jupiter.Testcontainers;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/**
 * A test with Ottla in a container, by the module for Kafka of testcontainers: only the name of the image differs.
 *
 * Needs a container runtime, the image (docs/containers.md), and org.testcontainers:kafka, :junit-jupiter and
 * org.apache.kafka:kafka-clients.
 */
@Testcontainers
class OrdersTest {
    @Container
    static final KafkaContainer OTTLA =
        new KafkaContainer(DockerImageName.parse("ottla:latest").asCompatibleSubstituteFor("apache/kafka"));

    @Test
    void orderIsReadBack() throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", OTTLA.getBootstrapServers(),
            "group.id", "test",
            "auto.offset.reset", "earliest");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", "one coffee")).get();
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            ConsumerRecords<String, String> records = ConsumerRecords.empty();
            for (int i = 0; i < 30 && records.isEmpty(); i++) {
                records = consumer.poll(Duration.ofSeconds(1));
            }
            assertEquals("one coffee", records.iterator().next().value());
        }
    }
}
