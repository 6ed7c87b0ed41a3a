package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** In place of the token provider's: gathers a client's settings and adds no tokens to them. */
public class KafkaConfigUpdater {
    private final Map<String, Object> gathered;

    public KafkaConfigUpdater(String user, scala.collection.immutable.Map<String, Object> given) {
        gathered = new HashMap<>(CollectionConverters.asJava(given));
    }

    public KafkaConfigUpdater set(String name, Object value) {
        gathered.put(name, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String name, Object value) {
        gathered.putIfAbsent(name, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> cluster) {
        return this;
    }

    public Map<String, Object> build() {
        return gathered;
    }
}
