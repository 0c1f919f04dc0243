// What the stock Node client (ali-ons) offers beside plain messages: FEATURE NAMESRV TOPIC GROUP.
//
// As go/features: a topic of one queue, JSON lines on standard output, judged by
// test_other_features.py.
'use strict';

const fs = require('fs');
const { Consumer, Message, Producer } = require('ali-ons');

const PATIENCE_MS = 60000;
// What comes too much comes soon after the last message that was wanted.
const SURPLUS_MS = 1000;
const EXPECTED = { tags: 2, broadcast: 8, retry: 3, delay: 2 };

const quiet = { info() {}, debug() {}, warn() {}, error() {} };

function say(line) {
  fs.writeSync(1, JSON.stringify(line) + '\n');
}

function pause(milliseconds) {
  return new Promise(resolve => setTimeout(resolve, milliseconds));
}

function connection(namesrv, instanceName) {
  return {
    httpclient: { request() { throw new Error('no HTTP here'); } },
    logger: quiet, nameSrv: namesrv, onsAddr: null,
    accessKeyId: process.env.INTEROP_ACCESS_KEY || '',
    accessKeySecret: process.env.INTEROP_SECRET_KEY || '',
    instanceName,
  };
}

function messages(feature, topic) {
  if (feature === 'tags') {
    return [ 'red', 'green', 'blue' ].map(color => new Message(topic, color, color));
  }
  if (feature === 'delay') {
    return [ 1, 2 ].map(level => {
      const message = new Message(topic, '', `level-${level}`);
      message.delayTimeLevel = level;
      return message;
    });
  }
  const count = feature === 'broadcast' ? 4 : 1;
  return Array.from({ length: count }, (_, i) => new Message(topic, '', `m${i}`));
}

async function main(feature, namesrv, topic, group) {
  let heard = 0;
  for (let number = 0; number < (feature === 'broadcast' ? 2 : 1); number++) {
    const consumer = new Consumer({
      ...connection(namesrv, `${group}${number}`),
      consumerGroup: group,
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
      isBroadcast: feature === 'broadcast',
    });
    consumer.on('error', () => {});
    consumer.subscribe(topic, feature === 'tags' ? 'red || blue' : '*', async message => {
      say({
        event: 'message', body: message.body.toString(), again: message.reconsumeTimes,
        consumer: number, waited: Date.now() - Number(message.bornTimestamp),
      });
      heard++;
      if (feature === 'retry' && message.reconsumeTimes < 2) throw new Error('not yet');
    });
    await consumer.ready();
  }
  const producer = new Producer({
    ...connection(namesrv, `${group}_senders`), producerGroup: `${group}_senders`,
  });
  producer.on('error', error => console.error(error));
  await producer.ready();
  for (const message of messages(feature, topic)) await producer.send(message);
  for (const end = Date.now() + PATIENCE_MS; heard < EXPECTED[feature] && Date.now() < end;) {
    await pause(20);
  }
  await pause(SURPLUS_MS);
  say({ event: 'done', count: heard });
  process.exit(0);
}

main(...process.argv.slice(2)).catch(error => {
  console.error(error);
  process.exit(1);
});
