package org.apache.spark.kafka010;

import scala.Tuple2;
import scala.collection.immutable.Seq;

/** In place of the token provider's: settings as they go into a log. Tests have no secrets. */
public class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    @SuppressWarnings("unchecked")
    public Seq<Tuple2<String, String>> redactParams(Seq<Tuple2<String, Object>> settings) {
        return (Seq<Tuple2<String, String>>) settings.map(row -> new Tuple2<>(row._1, String.valueOf(row._2)));
    }
}
