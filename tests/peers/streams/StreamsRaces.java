import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/**
 * The programs of benchmarks/streams_program.py in Kafka Streams, in one warm JVM.
 *
 * Arguments: bootstrap servers, directory of state, threads. Standard input has one command a line:
 *
 *   start NAME KIND INPUT OUTPUT GUARANTEE     answered with "started"; KIND is stateless or count
 *   stop                                       answered with "stopped {}"
 *
 * It ends at the end of its input.
 */
public final class StreamsRaces {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out; // for nothing else: what libraries print goes to standard error
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        KafkaStreams running = null;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.trim().split(" ");
            if (words[0].equals("start")) {
                running = start(arguments, words);
                answers.println("started");
            } else {
                running.close(Duration.ofSeconds(30));
                answers.println("stopped {}");
            }
            answers.flush();
        }
        System.exit(0);
    }

    private static KafkaStreams start(String[] arguments, String[] words) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, words[1]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, words[5]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(topology(words[2], words[3], words[4]).build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        return streams;
    }

    private static StreamsBuilder topology(String kind, String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> rows = builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()));
        if (kind.equals("stateless")) {
            rows.filter((key, value) -> value.charAt(0) != '0').mapValues(value -> value.toUpperCase()).to(output);
        } else {
            rows.groupByKey().count().mapValues(count -> Long.toString(count)).toStream()
                .to(output, Produced.with(Serdes.String(), Serdes.String()));
        }
        return builder;
    }
}
