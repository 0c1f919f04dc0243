import java.io.BufferedInputStream;
import java.io.BufferedWriter;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The stock Java client as the interop suite drives it; compiled against 4.9.3 and against 5.3.3.
 *
 * <p>Modes: {@code send} a corpus file, {@code consume} a topic, {@code load}: send small messages
 * until standard input ends, noting every acknowledgement in a file. Reports are JSON lines on
 * standard output; tests/interop/README.md describes them.
 */
public final class StockClient {
    // For routes, where the first TLS handshake of a virtual machine is in it.
    private static final int PATIENCE_MS = 20_000;

    private static final int SEND_TIMEOUT_MS = 15_000;
    private static final int SEND_ATTEMPTS_MAX = 5;
    private static final PrintStream OUT = utf8(System.out);

    private final Map<String, String> options;

    private StockClient(Map<String, String> options) {
        this.options = options;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        StockClient client = new StockClient(options);
        switch (arguments[0]) {
            case "send" -> client.send();
            case "consume" -> client.consume();
            case "load" -> client.load();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    // ---- send ---------------------------------------------------------------------------------

    /** Sends the corpus, one thread for each queue so that a queue keeps the order of the file. */
    private void send() throws Exception {
        DefaultMQProducer producer = producer();
        int lanes = number("queues", 4);
        AtomicInteger failed = new AtomicInteger();
        AtomicInteger sent = new AtomicInteger();
        List<BlockingQueue<Item>> inboxes = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int lane = 0; lane < lanes; lane++) {
            BlockingQueue<Item> inbox = new LinkedBlockingQueue<>(16);
            inboxes.add(inbox);
            Thread thread = new Thread(() -> drain(producer, inbox, sent, failed));
            thread.start();
            threads.add(thread);
        }
        long begin = System.nanoTime();
        try (DataInputStream corpus =
                new DataInputStream(new BufferedInputStream(new FileInputStream(text("corpus")), 1 << 16))) {
            for (Item item = Item.read(corpus); item != null; item = Item.read(corpus)) {
                inboxes.get(item.lane % lanes).put(item);
            }
        }
        for (int lane = 0; lane < lanes; lane++) {
            inboxes.get(lane).put(Item.END);
            threads.get(lane).join();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        producer.shutdown();
        say("{\"event\":\"done\",\"count\":" + sent + ",\"failed\":" + failed + ",\"seconds\":" + seconds + "}");
    }

    private void drain(
            DefaultMQProducer producer, BlockingQueue<Item> inbox, AtomicInteger sent, AtomicInteger failed) {
        try {
            for (Item item = inbox.take(); item != Item.END; item = inbox.take()) {
                if (sendOne(producer, item)) {
                    sent.incrementAndGet();
                } else {
                    failed.incrementAndGet();
                }
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean sendOne(DefaultMQProducer producer, Item item) throws InterruptedException {
        for (int attempt = 1; attempt <= SEND_ATTEMPTS_MAX; attempt++) {
            try {
                SendResult result = producer.send(
                        item.message(text("topic")),
                        (queues, message, lane) -> queues.get((Integer) lane % queues.size()),
                        item.lane,
                        SEND_TIMEOUT_MS);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    say("{\"event\":\"sent\",\"seq\":" + item.seq + ",\"attempts\":" + attempt
                            + ",\"queue\":" + result.getMessageQueue().getQueueId()
                            + ",\"offset\":" + result.getQueueOffset() + "}");
                    return true;
                }
                complain(item.seq, result.getSendStatus().toString());
            } catch (InterruptedException stopped) {
                throw stopped;
            } catch (Exception refused) {
                complain(item.seq, refused.toString());
            }
            Thread.sleep(200L * attempt);
        }
        return false;
    }

    private static void complain(int seq, String reason) {
        say("{\"event\":\"refused\",\"seq\":" + seq + ",\"reason\":" + quote(reason) + "}");
    }

    // ---- consume ------------------------------------------------------------------------------

    /** Consumes until {@code expect} different messages came, or none came for {@code idle} seconds. */
    private void consume() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(text("group"), hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(text("namesrv"));
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.setInstanceName(text("group"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(number("poll", 1000));
        consumer.setPullThresholdSizeForQueue(32);
        consumer.subscribe(text("topic"), options.getOrDefault("tags", "*"));
        Inbox inbox = new Inbox(System.nanoTime());
        if (options.containsKey("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                inbox.take(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                inbox.take(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        long begin = System.nanoTime();
        consumer.start();
        say("{\"event\":\"ready\"}");
        long idleNanos = number("idle", 60) * 1_000_000_000L;
        int expected = number("expect", Integer.MAX_VALUE);
        while (inbox.count() < expected && System.nanoTime() - inbox.lastNanos.get() < idleNanos) {
            Thread.sleep(20);
        }
        double seconds = (inbox.lastNanos.get() - begin) / 1e9;
        Thread.sleep(number("linger", 1) * 1000L);
        consumer.shutdown();
        say("{\"event\":\"done\",\"count\":" + inbox.count() + ",\"failed\":0,\"seconds\":" + seconds + "}");
    }

    /** Which places of the log were delivered, and when the last one was. */
    private static final class Inbox {
        final AtomicLong lastNanos;
        private final Set<Long> places = new HashSet<>();

        Inbox(long nowNanos) {
            lastNanos = new AtomicLong(nowNanos);
        }

        void take(List<MessageExt> messages) {
            for (MessageExt message : messages) {
                report(message);
                synchronized (places) {
                    places.add(message.getQueueOffset() << 8 | message.getQueueId());
                }
            }
            lastNanos.set(System.nanoTime());
        }

        int count() {
            synchronized (places) {
                return places.size();
            }
        }

        private static void report(MessageExt message) {
            StringBuilder line = new StringBuilder(512);
            line.append("{\"event\":\"message\",\"queue\":").append(message.getQueueId());
            line.append(",\"offset\":").append(message.getQueueOffset());
            line.append(",\"again\":").append(message.getReconsumeTimes());
            line.append(",\"size\":").append(message.getBody().length);
            line.append(",\"sha256\":\"").append(sha256(message.getBody())).append("\",\"properties\":{");
            String comma = "";
            for (Map.Entry<String, String> property : message.getProperties().entrySet()) {
                line.append(comma).append(quote(property.getKey())).append(':').append(quote(property.getValue()));
                comma = ",";
            }
            say(line.append("}}").toString());
        }
    }

    // ---- load ---------------------------------------------------------------------------------

    /** Sends at a bounded rate until standard input ends; an acknowledgement is a line of the file. */
    private void load() throws Exception {
        DefaultMQProducer producer = producer();
        int threadCount = number("threads", 4);
        int perSecond = number("rate", 400);
        long endNanos = System.nanoTime() + number("seconds", 600) * 1_000_000_000L;
        AtomicInteger sequence = new AtomicInteger();
        AtomicInteger acknowledged = new AtomicInteger();
        AtomicInteger refused = new AtomicInteger();
        Set<Thread> threads = new HashSet<>();
        boolean[] stop = new boolean[1];
        try (BufferedWriter acks = new BufferedWriter(new FileWriter(text("acks"), StandardCharsets.UTF_8))) {
            for (int i = 0; i < threadCount; i++) {
                Thread thread = new Thread(() -> {
                    while (!stop[0] && System.nanoTime() < endNanos) {
                        loadOne(producer, sequence.getAndIncrement(), acks, acknowledged, refused);
                        rest(1000L * threadCount / perSecond);
                    }
                });
                threads.add(thread);
                thread.start();
            }
            say("{\"event\":\"ready\"}");
            while (System.in.read() >= 0 && System.nanoTime() < endNanos) {
                say("{\"event\":\"progress\",\"count\":" + acknowledged + ",\"failed\":" + refused + "}");
            }
            stop[0] = true;
            for (Thread thread : threads) {
                thread.join();
            }
        }
        producer.shutdown();
        say("{\"event\":\"done\",\"count\":" + acknowledged + ",\"failed\":" + refused + ",\"seconds\":0}");
    }

    private void loadOne(
            DefaultMQProducer producer,
            int seq,
            BufferedWriter acks,
            AtomicInteger acknowledged,
            AtomicInteger refused) {
        byte[] body = ("load " + seq + " ").repeat(1 + seq % number("repeat", 40)).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(text("topic"), "load", "load-" + seq, body);
        message.putUserProperty("seq", Integer.toString(seq));
        try {
            SendResult result = producer.send(message);
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                refused.incrementAndGet();
                return;
            }
            String line = "{\"seq\":" + seq + ",\"msgId\":" + quote(result.getMsgId())
                    + ",\"offsetMsgId\":" + quote(result.getOffsetMsgId())
                    + ",\"queue\":" + result.getMessageQueue().getQueueId()
                    + ",\"offset\":" + result.getQueueOffset()
                    + ",\"sha256\":\"" + sha256(body) + "\"}\n";
            synchronized (acks) {
                acks.write(line);
                acks.flush();
            }
            acknowledged.incrementAndGet();
        } catch (Exception noAnswer) {
            refused.incrementAndGet();
            rest(20);
        }
    }

    // ---- parts --------------------------------------------------------------------------------

    /** Signs with the account of the environment; null without one. */
    private static RPCHook hook() {
        String name = System.getenv("INTEROP_ACCESS_KEY");
        return name == null
                ? null
                : new AclClientRPCHook(new SessionCredentials(name, System.getenv("INTEROP_SECRET_KEY")));
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(text("group"), hook());
        producer.setNamesrvAddr(text("namesrv"));
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.setInstanceName(text("group"));
        producer.setSendMsgTimeout(number("timeout", SEND_TIMEOUT_MS));
        // The default asks for routes each 30 s; a failover test wants to see the new leader soon.
        producer.setPollNameServerInterval(1000);
        producer.start();
        return producer;
    }

    private String text(String name) {
        String value = options.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing --" + name);
        }
        return value;
    }

    private int number(String name, int otherwise) {
        return options.containsKey(name) ? Integer.parseInt(options.get(name)) : otherwise;
    }

    private static void rest(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private static synchronized void say(String line) {
        OUT.println(line);
        OUT.flush();
    }

    private static PrintStream utf8(PrintStream stream) {
        return new PrintStream(stream, false, StandardCharsets.UTF_8);
    }

    private static String sha256(byte[] bytes) {
        try {
            StringBuilder hex = new StringBuilder(64);
            for (byte b : MessageDigest.getInstance("SHA-256").digest(bytes)) {
                hex.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
            }
            return hex.toString();
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static String quote(String value) {
        if (value == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder(value.length() + 2).append('"');
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }

    /** One message of a corpus file: 4 head size, head, 4 body size, body. */
    private static final class Item {
        static final Item END = new Item(-1, 0, "", "", new HashMap<>(), new byte[0]);
        final int seq;
        final int lane;
        private final String tags;
        private final String keys;
        private final Map<String, String> properties;
        private final byte[] body;

        private Item(int seq, int lane, String tags, String keys, Map<String, String> properties, byte[] body) {
            this.seq = seq;
            this.lane = lane;
            this.tags = tags;
            this.keys = keys;
            this.properties = properties;
            this.body = body;
        }

        static Item read(DataInputStream corpus) throws IOException {
            byte[] head;
            try {
                head = new byte[corpus.readInt()];
            } catch (EOFException end) {
                return null;
            }
            corpus.readFully(head);
            byte[] body = new byte[corpus.readInt()];
            corpus.readFully(body);
            String[] lines = new String(head, StandardCharsets.UTF_8).split("\n");
            Map<String, String> properties = new HashMap<>();
            for (int i = 4; i < lines.length; i++) {
                int equals = lines[i].indexOf('=');
                properties.put(lines[i].substring(0, equals), lines[i].substring(equals + 1));
            }
            return new Item(
                    Integer.parseInt(lines[0]), Integer.parseInt(lines[1]), lines[2], lines[3], properties, body);
        }

        Message message(String topic) {
            Message message = new Message(topic, tags, keys, body);
            properties.forEach(message::putUserProperty);
            return message;
        }
    }
}
