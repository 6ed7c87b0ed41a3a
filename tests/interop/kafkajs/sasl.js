// kafkajs logs in with each mechanism: `node sasl.js BOOTSTRAP TOPIC USER PASSWORD`. The exit code tells the outcome.

"use strict";

const assert = require("node:assert/strict");
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, username, password] = process.argv.slice(2);

function client(mechanism, secret) {
  const sasl = { mechanism, username, password: secret };
  return new Kafka({ clientId: "sasl", brokers: [bootstrap], sasl, logLevel: logLevel.NOTHING, retry: { retries: 1 } });
}

async function main() {
  for (const mechanism of ["plain", "scram-sha-256", "scram-sha-512"]) {
    const producer = client(mechanism, password).producer();
    await producer.connect();
    const [sent] = await producer.send({ topic, messages: [{ value: mechanism }] });
    assert.equal(sent.errorCode, 0);
    await producer.disconnect();
    const wrong = client(mechanism, "wrong").producer();
    await assert.rejects(wrong.connect(), /SASL|Authentication/);
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
