"""The peers that the tests run Ottla against: stock Apache Kafka and its tools, kcat, kafkajs, franz-go,
sarama, Confluent's Java clients.

`python -m tests.peers fetch` brings all of it to the cache; `kafka` runs stock brokers and tools, `node` runs scripts.
Nothing here is part of the package.
"""
