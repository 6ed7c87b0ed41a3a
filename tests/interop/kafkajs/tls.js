// kafkajs over TLS with a client certificate: `node tls.js BOOTSTRAP TOPIC CERTIFICATES`.

"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, directory] = process.argv.slice(2);
const text = (name) => fs.readFileSync(`${directory}/${name}`, "utf8");
const ssl = { ca: [text("ca.pem")], key: text("client.key"), cert: text("client.crt") };
const kafka = new Kafka({ clientId: "tls", brokers: [bootstrap], ssl, logLevel: logLevel.NOTHING });
const values = Array.from({ length: 8 }, (_, number) => String(number).repeat(500000));

async function run() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
  const producer = kafka.producer();
  await producer.connect();
  for (const value of values) await producer.send({ topic, messages: [{ value }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: topic, maxBytesPerPartition: 8000000 });
  const seen = [];
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`only ${seen.length} records within 30 s`)), 30000);
    consumer.run({
      eachMessage: async ({ message }) => {
        seen.push(message.value.toString());
        if (seen.length === values.length) {
          clearTimeout(timer);
          resolve();
        }
      },
    });
  });
  await consumer.disconnect();
  assert.deepEqual(seen, values);
}

run().catch((error) => {
  console.error(error);
  process.exit(1);
});
