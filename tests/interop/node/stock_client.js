// The stock Node client (ali-ons) as the interop suite drives it.
//
// Modes: send a corpus file, consume a topic. Reports are JSON lines on standard output;
// tests/interop/README.md describes them. The client takes no queue selector, so it is given
// one message at a time: a queue then keeps the order of the file.
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const { Consumer, Message, Producer } = require('ali-ons');

const SEND_TIMEOUT_MS = 15000;
const SEND_ATTEMPTS_MAX = 5;

const quiet = {
  info() {},
  debug() {},
  warn() {},
  error(...parts) {
    console.error(...parts);
  },
};

function say(line) {
  fs.writeSync(1, JSON.stringify(line) + '\n');
}

function pause(milliseconds) {
  return new Promise(resolve => setTimeout(resolve, milliseconds));
}

function connection(options) {
  return {
    // The client asks for an HTTP client even when it has a name server; it never calls it then.
    httpclient: { request() { throw new Error('no HTTP here'); } },
    logger: quiet,
    nameSrv: options.namesrv,
    onsAddr: null,
    accessKeyId: process.env.INTEROP_ACCESS_KEY || '',
    accessKeySecret: process.env.INTEROP_SECRET_KEY || '',
    instanceName: options.group,
  };
}

// Yields the messages of a corpus file: 4 head size, head, 4 body size, body.
function* items(path) {
  const file = fs.openSync(path, 'r');
  const read = size => {
    const block = Buffer.alloc(size);
    return fs.readSync(file, block, 0, size, null) === size ? block : null;
  };
  for (let size = read(4); size; size = read(4)) {
    const [ seq, lane, tags, keys, ...rest ] = read(size.readInt32BE(0)).toString().split('\n');
    const bodySize = read(4).readInt32BE(0);
    const properties = {};
    for (const line of rest) {
      const at = line.indexOf('=');
      properties[line.slice(0, at)] = line.slice(at + 1);
    }
    yield { seq: Number(seq), lane: Number(lane), tags, keys, properties, body: read(bodySize) };
  }
  fs.closeSync(file);
}

async function send(options) {
  const producer = new Producer({
    ...connection(options),
    producerGroup: options.group,
    sendMsgTimeout: SEND_TIMEOUT_MS,
    retryTimesWhenSendFailed: 0,
    maxMessageSize: 4 * 1024 * 1024,
  });
  producer.on('error', error => console.error(error));
  await producer.ready();
  const begin = Date.now();
  let count = 0;
  let failed = 0;
  for (const item of items(options.corpus)) {
    if (await sendOne(producer, options.topic, item)) count++;
    else failed++;
  }
  say({ event: 'done', count, failed, seconds: (Date.now() - begin) / 1000 });
}

async function sendOne(producer, topic, item) {
  for (let attempt = 1; attempt <= SEND_ATTEMPTS_MAX; attempt++) {
    const message = new Message(topic, item.tags, item.body);
    message.keys = [ item.keys ];
    Object.assign(message.properties, item.properties);
    try {
      const result = await producer.send(message);
      if (result.sendStatus === 'SEND_OK') {
        say({
          event: 'sent', seq: item.seq, attempts: attempt,
          queue: Number(result.messageQueue.queueId), offset: Number(result.queueOffset),
        });
        return true;
      }
      say({ event: 'refused', seq: item.seq, reason: String(result.sendStatus) });
    } catch (error) {
      say({ event: 'refused', seq: item.seq, reason: String(error) });
    }
    await pause(200 * attempt);
  }
  return false;
}

async function consume(options) {
  const expect = Number(options.expect || 1 << 30);
  const idle = Number(options.idle || 60) * 1000;
  const places = new Set();
  const begin = Date.now();
  let last = begin;
  const consumer = new Consumer({
    ...connection(options),
    consumerGroup: options.group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    pullTimeDelayMillsWhenFlowControl: 100,
  });
  consumer.on('error', error => console.error(error));
  consumer.subscribe(options.topic, '*', async message => {
    const body = message.body || Buffer.alloc(0);
    say({
      event: 'message', queue: message.queueId, offset: message.queueOffset,
      again: message.reconsumeTimes, size: body.length,
      sha256: crypto.createHash('sha256').update(body).digest('hex'),
      properties: message.properties,
    });
    places.add(`${message.queueId}/${message.queueOffset}`);
    last = Date.now();
  });
  await consumer.ready();
  say({ event: 'ready' });
  while (places.size < expect && Date.now() - last < idle) {
    await pause(20);
  }
  await pause(1000);
  await consumer.close();
  say({ event: 'done', count: places.size, failed: 0, seconds: (last - begin) / 1000 });
}

async function main(mode, words) {
  const options = {};
  for (let i = 0; i + 1 < words.length; i += 2) {
    options[words[i].slice(2)] = words[i + 1];
  }
  await (mode === 'send' ? send(options) : consume(options));
  process.exit(0);
}

main(process.argv[2], process.argv.slice(3)).catch(error => {
  console.error(error);
  process.exit(1);
});
