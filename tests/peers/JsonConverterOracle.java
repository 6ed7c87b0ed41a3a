// Kafka's own JsonConverter and SimpleHeaderConverter: one JVM answers thousands of questions.
//
// A question is one line on standard input: a kind, then base64. The kinds: `BASE64` and `NUMERIC` read a record with
// its schema, and write it again with this decimal.format; `content:` and a schema in base64 read a record by this
// schema.content, and write it with its schema; `header` reads a header, and writes its schema type and its
// value as JSON without a schema. The answer is one line of base64: the bytes, or "!" and the message of the exception.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

public final class JsonConverterOracle {
    public static void main(String[] none) throws Exception {
        Map<String, JsonConverter> converters = new HashMap<>();
        for (String format : new String[] {"BASE64", "NUMERIC"}) {
            converters.put(format, converter(Map.of("decimal.format", format, "schemas.enable", "true")));
        }
        JsonConverter plain = converter(Map.of("schemas.enable", "false"));
        SimpleHeaderConverter headers = new SimpleHeaderConverter();
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split(" ", -1);
            byte[] data = Base64.getDecoder().decode(words[1]);
            try {
                byte[] answer;
                if (words[0].equals("header")) {
                    SchemaAndValue read = headers.toConnectHeader("t", "h", data);
                    String type = read.schema() == null ? "null" : read.schema().type().name();
                    String json = new String(written(plain, null, read.value()), StandardCharsets.UTF_8);
                    answer = (type + " " + json).getBytes(StandardCharsets.UTF_8);
                } else if (words[0].startsWith("content:")) {
                    byte[] schema = Base64.getDecoder().decode(words[0].substring("content:".length()));
                    String content = new String(schema, StandardCharsets.UTF_8);
                    JsonConverter converter = converter(Map.of("schemas.enable", "true", "schema.content", content));
                    SchemaAndValue read = converter.toConnectData("t", data);
                    answer = written(converter, read.schema(), read.value());
                } else {
                    JsonConverter converter = converters.get(words[0]);
                    SchemaAndValue read = converter.toConnectData("t", data);
                    answer = written(converter, read.schema(), read.value());
                }
                answers.append(Base64.getEncoder().encodeToString(answer)).append('\n');
            } catch (Exception e) {
                answers.append('!').append(String.valueOf(e.getMessage()).replace('\n', ' ')).append('\n');
            }
        }
        System.out.print(answers);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static byte[] written(JsonConverter converter, org.apache.kafka.connect.data.Schema schema, Object value) {
        byte[] data = converter.fromConnectData("t", schema, value);
        return data == null ? "null".getBytes(StandardCharsets.UTF_8) : data;
    }

    private static JsonConverter converter(Map<String, String> settings) {
        JsonConverter converter = new JsonConverter();
        converter.configure(settings, false);
        return converter;
    }
}
