import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs Debezium's embedded engine with the properties of a file, and prints each event as a line of three parts with
 * tabs between: topic, key, value (JSON with schemas, or "null"). Ends when its standard input ends.
 */
public final class DebeziumRun {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(reader);
        }
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .using((success, message, error) -> {
                    if (!success) {
                        System.err.println("Debezium ended: " + message);
                        if (error != null) {
                            error.printStackTrace();
                        }
                        Runtime.getRuntime().halt(1);
                    }
                })
                .notifying((records, committer) -> {
                    for (var record : records) {
                        out.println(record.destination() + "\t" + record.key() + "\t" + record.value());
                        committer.markProcessed(record);
                    }
                    out.flush();
                    committer.markBatchFinished();
                })
                .build();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.execute(engine);
        while (System.in.read() >= 0) {
        }
        engine.close();
        executor.shutdown();
        executor.awaitTermination(20, TimeUnit.SECONDS);
        Runtime.getRuntime().halt(0);
    }
}
