import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Messages that wait, as the stock Java client sends and consumes them.
 *
 * <p>Modes: {@code delay}, {@code retry}, {@code transaction}; each sends {@code --count} messages and
 * consumes until {@code --expect} came and nothing more for {@code --idle} seconds. Reports are JSON
 * lines: {@code sent}, {@code message}, {@code checked}, {@code done}.
 */
public final class WaitingMessages {
    // For routes, where the first TLS handshake of a virtual machine is in it.
    private static final int PATIENCE_MS = 20_000;

    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final Map<String, String> options;
    private final AtomicInteger consumed = new AtomicInteger();
    private volatile long lastMs = System.currentTimeMillis();

    private WaitingMessages(Map<String, String> options) {
        this.options = options;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        WaitingMessages program = new WaitingMessages(options);
        switch (arguments[0]) {
            case "delay" -> program.delay();
            case "retry" -> program.retry();
            case "transaction" -> program.transaction();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    /** Each message asks for level 1 or 2 in turn; the body is the level. */
    private void delay() throws Exception {
        DefaultMQPushConsumer consumer = consumer(text("topic"), Integer.MAX_VALUE);
        DefaultMQProducer producer = new DefaultMQProducer(text("group") + "_senders", hook());
        producer.setNamesrvAddr(text("namesrv"));
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.start();
        for (int i = 0; i < number("count"); i++) {
            int level = 1 + i % 2;
            Message message = new Message(text("topic"), "T", "k" + i, bytes("level-" + level + "-" + i));
            message.setDelayTimeLevel(level);
            sent(producer.send(message));
        }
        drain();
        producer.shutdown();
        consumer.shutdown();
    }

    /** The listener fails each message until it was tried --tries times; the dead letters are read, too. */
    private void retry() throws Exception {
        DefaultMQPushConsumer consumer = consumer(text("topic"), number("tries"));
        consumer.setMaxReconsumeTimes(number("maxtries"));
        DefaultMQPushConsumer dead = plainConsumer(text("group") + "_dead", "%DLQ%" + text("group"));
        DefaultMQProducer producer = new DefaultMQProducer(text("group") + "_senders", hook());
        producer.setNamesrvAddr(text("namesrv"));
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.start();
        for (int i = 0; i < number("count"); i++) {
            sent(producer.send(new Message(text("topic"), "T", "k" + i, bytes("m" + i))));
        }
        drain();
        producer.shutdown();
        consumer.shutdown();
        dead.shutdown();
    }

    /** In turn: commit, roll back, unknown and committed by the check, unknown and rolled back by it. */
    private void transaction() throws Exception {
        DefaultMQPushConsumer consumer = consumer(text("topic"), Integer.MAX_VALUE);
        TransactionMQProducer producer = new TransactionMQProducer(text("group") + "_senders", hook());
        producer.setNamesrvAddr(text("namesrv"));
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return switch ((Integer) argument % 4) {
                    case 0 -> LocalTransactionState.COMMIT_MESSAGE;
                    case 1 -> LocalTransactionState.ROLLBACK_MESSAGE;
                    default -> LocalTransactionState.UNKNOW;
                };
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                line("checked", ",\"body\":\"" + body + "\",\"topic\":\"" + message.getTopic() + "\"");
                return Integer.parseInt(body.substring(1)) % 4 == 2
                        ? LocalTransactionState.COMMIT_MESSAGE
                        : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        for (int i = 0; i < number("count"); i++) {
            Message message = new Message(text("topic"), "T", "k" + i, bytes("t" + i));
            sent(producer.sendMessageInTransaction(message, i));
        }
        drain();
        producer.shutdown();
        consumer.shutdown();
    }

    /** Signs with the account of the environment; null without one. */
    private static RPCHook hook() {
        String name = System.getenv("INTEROP_ACCESS_KEY");
        return name == null
                ? null
                : new AclClientRPCHook(new SessionCredentials(name, System.getenv("INTEROP_SECRET_KEY")));
    }

    private DefaultMQPushConsumer consumer(String topic, int tries) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(text("group"), hook(), new AllocateMessageQueueAveragely());
        if (options.containsKey("maxtries")) {
            consumer.setMaxReconsumeTimes(number("maxtries"));
        }
        return start(consumer, topic, tries);
    }

    private DefaultMQPushConsumer plainConsumer(String group, String topic) throws Exception {
        return start(new DefaultMQPushConsumer(group, hook(), new AllocateMessageQueueAveragely()), topic, Integer.MAX_VALUE);
    }

    private DefaultMQPushConsumer start(DefaultMQPushConsumer consumer, String topic, int tries)
            throws Exception {
        consumer.setNamesrvAddr(text("namesrv"));
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.setInstanceName(consumer.getConsumerGroup());
        // Topics of retries and dead letters come to be meanwhile; by default a client looks each 30 s.
        consumer.setPollNameServerInterval(2000);
        consumer.setHeartbeatBrokerInterval(5000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                long now = System.currentTimeMillis();
                lastMs = now;
                // Every second message fails for good when there is a limit of tries.
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                boolean fails = tries != Integer.MAX_VALUE
                        && (body.endsWith("1") || message.getReconsumeTimes() < tries);
                line("message", ",\"topic\":\"" + topic + "\",\"seen\":\"" + message.getTopic()
                        + "\",\"body\":\"" + body + "\",\"again\":" + message.getReconsumeTimes()
                        + ",\"waited\":" + (now - message.getBornTimestamp()) + ",\"fails\":" + fails
                        + ",\"queue\":" + message.getQueueId() + ",\"offset\":" + message.getQueueOffset());
                if (fails) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                consumed.incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** Waits until as much was consumed as is expected, and then for what should not come. */
    private void drain() throws InterruptedException {
        long deadline = System.currentTimeMillis() + 60_000;
        while (System.currentTimeMillis() < deadline) {
            boolean isQuiet = System.currentTimeMillis() - lastMs > number("idle") * 1000L;
            if (consumed.get() >= number("expect") && isQuiet) {
                break;
            }
            Thread.sleep(50);
        }
        line("done", ",\"count\":" + consumed.get());
    }

    private static void sent(SendResult result) {
        line("sent", ",\"status\":\"" + result.getSendStatus() + "\",\"id\":\"" + result.getMsgId() + "\"");
    }

    private static synchronized void line(String event, String fields) {
        OUT.println("{\"event\":\"" + event + "\"" + fields + "}");
        OUT.flush();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private String text(String name) {
        return options.get(name);
    }

    private int number(String name) {
        return Integer.parseInt(options.get(name));
    }
}
