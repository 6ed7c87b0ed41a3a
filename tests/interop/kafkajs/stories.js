// Stories that kafkajs tells about a broker: `node stories.js BOOTSTRAP STORY TOPIC`.
// A story throws when the broker misbehaves; the exit code says so, the message says what was wrong.

"use strict";

const assert = require("node:assert/strict");
const { Kafka, CompressionTypes, KafkaJSProtocolError, logLevel } = require("kafkajs");

const [bootstrap, story, topic] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "stories", brokers: [bootstrap], logLevel: logLevel.NOTHING });
const WAIT_MS = 30000;

async function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${WAIT_MS} ms: ${what}`)), WAIT_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function until(condition, what) {
  const deadline = Date.now() + WAIT_MS;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `not within ${WAIT_MS} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function withAdmin(work) {
  const admin = kafka.admin();
  await within(admin.connect(), "connect");
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

const create = (admin, numPartitions, configEntries = []) =>
  admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }], waitForLeaders: true });

async function produce(messages, options = {}) {
  const producer = kafka.producer({ allowAutoTopicCreation: false, ...options.producer });
  await within(producer.connect(), "connect");
  try {
    return await within(producer.send({ topic, messages, ...options.send }), "send");
  } finally {
    await producer.disconnect();
  }
}

/** A member of a group; `seen` fills up with what it reads, `owned` is what it was given last. */
async function member(groupId) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 300, maxWaitTimeInMs: 100 });
  const it = { consumer, seen: [], owned: [] };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    it.owned = payload.memberAssignment[topic] || [];
  });
  await within(consumer.connect(), "connect");
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) => {
      it.seen.push({ partition, ...message, key: String(message.key), value: String(message.value) });
    },
  });
  return it;
}

const stories = {
  async codecs() {
    await withAdmin((admin) => create(admin, 1));
    for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
      const messages = [...Array(50).keys()].map((i) => ({
        key: `${compression}-${i}`,
        value: "value ".repeat(20) + i,
        headers: { who: "kafkajs", twice: ["a", "b"] },
        timestamp: String(1795000000000 + i),
      }));
      await produce(messages, { send: { compression, acks: -1 } });
    }
    const reader = await member(topic);
    await until(() => reader.seen.length >= 100, "100 records");
    await reader.consumer.disconnect();
    assert.equal(reader.seen.length, 100);
    reader.seen.forEach((record, i) => {
      assert.equal(record.offset, String(i));
      assert.equal(record.key, `${i < 50 ? 0 : 1}-${i % 50}`);
      assert.equal(record.timestamp, String(1795000000000 + (i % 50)));
      assert.equal(String(record.headers.who), "kafkajs");
      assert.deepEqual(record.headers.twice.map(String), ["a", "b"]);
    });
  },

  async idempotent() {
    await withAdmin((admin) => create(admin, 1));
    const [sent] = await produce([{ value: "a" }, { value: "b" }], { producer: { idempotent: true } });
    assert.equal(sent.errorCode, 0);
    assert.equal(sent.baseOffset, "0");
  },

  // Consume, transform, produce: every other transaction is aborted, and its records are processed again.
  async transactions() {
    const target = `${topic}-target`;
    await withAdmin(async (admin) => {
      await create(admin, 1);
      await admin.createTopics({ topics: [{ topic: target, numPartitions: 1 }], waitForLeaders: true });
    });
    await produce([...Array(6).keys()].map((i) => ({ value: String(i) })));

    const settings = { transactionalId: topic, maxInFlightRequests: 1, idempotent: true };
    const producer = kafka.producer(settings);
    await within(producer.connect(), "connect");
    const move = async (end, from) => {
      const transaction = await within(producer.transaction(), "begin");
      const values = [from, from + 1].map((i) => ({ value: `${end} ${i}` }));
      await within(transaction.send({ topic: target, messages: values }), "send");
      const topics = [{ topic, partitions: [{ partition: 0, offset: String(from + 2) }] }];
      await within(transaction.sendOffsets({ consumerGroupId: topic, topics }), "send offsets");
      await within(transaction[end](), end);
    };
    const committed = () =>
      withAdmin(async (admin) => {
        const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
        return Number(partitions[0].offset);
      });
    for (const from of [0, 2, 4]) {
      await move("abort", from);
      assert.equal(await committed(), from === 0 ? -1 : from);
      await move("commit", from);
      assert.equal(await committed(), from + 2);
    }

    const read = async (readUncommitted, count) => {
      const groupId = `${topic}-${readUncommitted}-${count}`;
      const consumer = kafka.consumer({ groupId, readUncommitted, maxWaitTimeInMs: 100 });
      const values = [];
      await within(consumer.connect(), "connect");
      await consumer.subscribe({ topics: [target], fromBeginning: true });
      await consumer.run({ eachMessage: async ({ message }) => values.push(String(message.value)) });
      await until(() => values.length >= count, `${count} records`);
      await consumer.disconnect();
      return values;
    };
    assert.deepEqual(await read(false, 6), [...Array(6).keys()].map((i) => `commit ${i}`));
    assert.equal((await read(true, 12)).length, 12);

    // A second producer of the same id fences the first one, which is in a transaction.
    const open = await within(producer.transaction(), "begin");
    await within(open.send({ topic: target, messages: [{ value: "fenced" }] }), "send");
    const next = kafka.producer(settings);
    await within(next.connect(), "connect");
    const transaction = await within(next.transaction(), "begin");
    await within(transaction.send({ topic: target, messages: [{ value: "commit 6" }] }), "send");
    await within(transaction.commit(), "commit");
    const fenced = await within(open.commit(), "commit").catch((e) => e);
    assert.match(String(fenced.type), /INVALID_PRODUCER_EPOCH|PRODUCER_FENCED/);
    await producer.disconnect();
    await next.disconnect();
    assert.deepEqual((await read(false, 7)).slice(6), ["commit 6"]);
  },

  async rebalance() {
    await withAdmin((admin) => create(admin, 4));
    const first = await member(topic);
    await until(() => first.owned.length === 4, "the first member owns all");
    const second = await member(topic);
    await until(() => first.owned.length === 2 && second.owned.length === 2, "both own half");
    assert.deepEqual([...first.owned, ...second.owned].sort(), [0, 1, 2, 3]);
    const messages = [...Array(40).keys()].map((i) => ({ partition: i % 4, value: String(i) }));
    await produce(messages);
    await until(() => first.seen.length + second.seen.length >= 40, "40 records");
    const values = [...first.seen, ...second.seen].map((r) => Number(r.value)).sort((a, b) => a - b);
    assert.deepEqual(values, [...Array(40).keys()]);

    await second.consumer.disconnect();
    await until(() => first.owned.length === 4, "the first member owns all again");
    await first.consumer.disconnect();
    await withAdmin(async (admin) => {
      const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
      assert.deepEqual(partitions.map((p) => p.offset), ["10", "10", "10", "10"]);
    });
  },

  async admin() {
    await withAdmin(async (admin) => {
      await create(admin, 2, [{ name: "retention.ms", value: "123456" }]);
      assert.equal(await create(admin, 2), false, "a topic that is there is not created again");
      assert.ok((await admin.listTopics()).includes(topic));
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
      assert.deepEqual(topics[0].partitions.map((p) => p.partitionId).sort(), [0, 1]);

      const { resources } = await admin.describeConfigs({
        includeSynonyms: true,
        resources: [{ type: 2, name: topic, configNames: ["retention.ms"] }],
      });
      assert.equal(resources[0].configEntries[0].configValue, "123456");
      await admin.alterConfigs({
        validateOnly: false,
        resources: [{ type: 2, name: topic, configEntries: [{ name: "retention.ms", value: "234567" }] }],
      });

      await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
      await produce([0, 0, 1].map((partition) => ({ partition, value: "v" })));
      const offsets = await admin.fetchTopicOffsets(topic);
      const highs = Object.fromEntries(offsets.map((o) => [o.partition, o.high]));
      assert.deepEqual(highs, { 0: "2", 1: "1", 2: "0" });
      const [early] = await admin.fetchTopicOffsetsByTimestamp(topic, 0);
      assert.equal(early.offset, "0");

      await admin.setOffsets({ groupId: topic, topic, partitions: [{ partition: 0, offset: "1" }] });
      const committed = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
      assert.equal(committed[0].partitions.find((p) => p.partition === 0).offset, "1");
      const { groups } = await admin.describeGroups([topic]);
      assert.equal(groups[0].state, "Empty");
      assert.ok((await admin.listGroups()).groups.some((g) => g.groupId === topic));
      await admin.deleteGroups([topic]);

      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "1" }] });
      const [{ low }] = (await admin.fetchTopicOffsets(topic)).filter((o) => o.partition === 0);
      assert.equal(low, "1");
      const cluster = await admin.describeCluster();
      assert.equal(cluster.brokers.length, 1);
      await admin.deleteTopics({ topics: [topic] });
      assert.ok(!(await admin.listTopics()).includes(topic));
    });
  },

  async errors() {
    const unknown = await produce([{ value: "v" }], { producer: { retry: { retries: 0 } } }).catch((e) => e);
    assert.match(`${unknown.name} ${unknown.type} ${unknown.message}`, /UNKNOWN_TOPIC_OR_PARTITION|does not host/);
    await withAdmin(async (admin) => {
      const replicas = await admin
        .createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 3 }] })
        .catch((e) => e.errors[0]);
      assert.ok(replicas instanceof KafkaJSProtocolError);
      assert.equal(replicas.type, "INVALID_REPLICATION_FACTOR");
      const config = await create(admin, 1, [{ name: "nonsense", value: "1" }]).catch((e) => e.errors[0]);
      assert.equal(config.type, "INVALID_CONFIG");
      await create(admin, 1, [{ name: "max.message.bytes", value: "500" }]);
    });
    const large = await produce([{ value: "x".repeat(1000) }]).catch((e) => e);
    assert.equal(large.type, "MESSAGE_TOO_LARGE");
  },
};

stories[story]().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
