import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.JsonByteArray;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Runs Debezium's embedded engine with the properties of a file, and sends its events to Kafka, as Connect does. */
public final class DebeziumToKafka {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(reader);
        }
        Properties client = new Properties();
        client.put("bootstrap.servers", properties.getProperty("bootstrap.servers"));
        client.put("acks", "all");
        client.put("delivery.timeout.ms", Integer.toString(Integer.MAX_VALUE));
        client.put("max.in.flight.requests.per.connection", "1");
        var serializer = new ByteArraySerializer();
        var producer = new KafkaProducer<byte[], byte[]>(client, serializer, serializer);
        DebeziumEngine<ChangeEvent<byte[], byte[]>> engine = DebeziumEngine.create(JsonByteArray.class)
                .using(properties)
                .using((success, message, error) -> {
                    System.err.println("Debezium ended: " + message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                    Runtime.getRuntime().halt(1);
                })
                .notifying((records, committer) -> {
                    for (var record : records) {
                        producer.send(new ProducerRecord<>(record.destination(), record.key(), record.value()));
                    }
                    producer.flush();
                    for (var record : records) {
                        committer.markProcessed(record);
                    }
                    committer.markBatchFinished();
                })
                .build();
        engine.run();
    }
}
