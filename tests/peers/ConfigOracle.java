// What stock Kafka's own classes say about settings: one JVM answers thousands of questions.
//
// A question is one line on standard input, its words encoded as "b" + base64 of UTF-8: a kind, then names and values
// by turns. The kinds: `static` (a broker that starts with these settings beside the least that it needs), `topic` and
// `group` (AlterConfigs of such a resource on a default broker). The answer is one line: "ok", or the message of the
// exception, encoded likewise. The kind `properties` has one word, the bytes of a file as ISO 8859-1; its answer is the
// names and values that java.util.Properties reads from it.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public final class ConfigOracle {
    private static final Map<String, String> LEAST = Map.of(
        "process.roles", "broker,controller",
        "node.id", "1",
        "controller.listener.names", "CONTROLLER",
        "controller.quorum.voters", "1@127.0.0.1:9093",
        "listeners", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "log.dirs", "/tmp/config-oracle");

    public static void main(String[] none) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            List<String> words = new ArrayList<>();
            for (String word : line.split(" ")) words.add(decode(word));
            answers.append(answer(words)).append('\n');
        }
        System.out.print(answers);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String answer(List<String> words) {
        try {
            if (words.get(0).equals("properties")) return properties(words.get(1));
            Map<String, String> settings = new HashMap<>();
            for (int i = 1; i < words.size(); i += 2) settings.put(words.get(i), words.get(i + 1));
            switch (words.get(0)) {
                case "static": start(settings); break;
                case "topic": alterTopic(settings); break;
                case "group": alterGroup(settings); break;
                default: throw new AssertionError(words.get(0));
            }
            return "ok";
        } catch (Exception e) {
            return encode(String.valueOf(e.getMessage()));
        }
    }

    private static KafkaConfig broker(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.putAll(LEAST);
        properties.putAll(settings);
        return KafkaConfig.fromProps(properties, false);
    }

    /** Reads what a start reads of its settings after they were parsed, too. */
    private static void start(Map<String, String> settings) {
        KafkaConfig config = broker(settings);
        config.maxConnectionsPerIpOverrides();
        LogConfig.validateBrokerLogConfigValues(config.extractLogConfigMap(), false);
        new LogConfig(config.extractLogConfigMap());
        new CleanerConfig(config);
    }

    private static void alterTopic(Map<String, String> settings) {
        LogConfig.validate(Map.of(), settings, broker(Map.of()).extractLogConfigMap(), false);
    }

    private static void alterGroup(Map<String, String> settings) {
        KafkaConfig config = broker(Map.of());
        GroupConfig.validate(settings, config.groupCoordinatorConfig(), config.shareGroupConfig());
    }

    private static String properties(String text) throws Exception {
        Properties read = new Properties();
        read.load(new java.io.ByteArrayInputStream(text.getBytes(StandardCharsets.ISO_8859_1)));
        StringBuilder answer = new StringBuilder("ok");
        new TreeMap<>(read).forEach((name, value) ->
            answer.append(' ').append(encode((String) name)).append(' ').append(encode((String) value)));
        return answer.toString();
    }

    private static String decode(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }

    private static String encode(String text) {
        return "b" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
