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
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * What the stock Java client offers beside plain messages: accounts, requests with replies, traces.
 *
 * <p>Modes: {@code work} sends and consumes, {@code request} asks and is answered, {@code trace} sends
 * and consumes with the trace of messages on, {@code vip} sends to the port for it. With
 * {@code --accesskey} and {@code --secretkey} all requests are signed; {@code --patience} is how many
 * milliseconds an answer may take. Reports are JSON lines:
 * {@code sent}, {@code message}, {@code reply}, {@code refused}, {@code done}.
 */
public final class ClientFeatures {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final Map<String, String> options;
    private final AtomicInteger consumed = new AtomicInteger();
    private final AtomicInteger answered = new AtomicInteger();

    private ClientFeatures(Map<String, String> options) {
        this.options = options;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        ClientFeatures program = new ClientFeatures(options);
        try {
            switch (arguments[0]) {
                case "work" -> program.work(false, false);
                case "trace" -> program.work(true, false);
                case "vip" -> program.work(false, true);
                case "request" -> program.request();
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        } catch (org.apache.rocketmq.client.exception.MQBrokerException
                | org.apache.rocketmq.client.exception.MQClientException
                | org.apache.rocketmq.client.exception.RequestTimeoutException
                | org.apache.rocketmq.remoting.exception.RemotingException
                | IllegalStateException refusal) {
            line("refused", ",\"reason\":\"" + safe(refusal.getMessage() + " " + refusal.getCause()) + "\"");
        }
        line("done", ",\"count\":" + program.consumed.get());
        System.exit(0);
    }

    private void work(boolean isTraced, boolean isVip) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(text("group") + "_senders", hook(), isTraced, null);
        producer.setNamesrvAddr(text("namesrv"));
        producer.setMqClientApiTimeout(number("patience"));
        producer.setSendMsgTimeout(number("patience"));
        producer.setVipChannelEnabled(isVip);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                text("group"), hook(), new AllocateMessageQueueAveragely(), isTraced, null);
        consumer.setNamesrvAddr(text("namesrv"));
        consumer.setMqClientApiTimeout(number("patience"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                line("message", ",\"body\":\"" + safe(body) + "\",\"keys\":\"" + safe(message.getKeys()) + "\"");
                consumed.incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        for (int i = 0; i < number("count"); i++) {
            sent(producer.send(new Message(text("topic"), "T", "k" + i, bytes("m" + i))));
        }
        consumer.start();
        await(number("expect"));
        if (isTraced) {
            // The dispatchers send what they gathered when they are shut down.
            Thread.sleep(2000);
        }
        consumer.shutdown();
        producer.shutdown();
    }

    /** A consumer answers each message with its body in capitals. */
    private void request() throws Exception {
        DefaultMQProducer answering = new DefaultMQProducer(text("group") + "_answering", hook());
        answering.setNamesrvAddr(text("namesrv"));
        answering.setMqClientApiTimeout(number("patience"));
        answering.setSendMsgTimeout(number("patience"));
        answering.setInstanceName("answering");
        answering.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                text("group"), hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(text("namesrv"));
        consumer.setMqClientApiTimeout(number("patience"));
        consumer.setInstanceName("answering_consumer");
        consumer.setPullInterval(0);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String body = new String(message.getBody(), StandardCharsets.UTF_8);
                    Message reply = MessageUtil.createReplyMessage(message, bytes(body.toUpperCase()));
                    sent(answering.send(reply, 20_000));
                    answered.incrementAndGet();
                } catch (Exception failure) {
                    line("refused", ",\"reason\":\"" + safe(String.valueOf(failure.getMessage())) + "\"");
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer asking = new DefaultMQProducer(text("group") + "_asking", hook());
        asking.setNamesrvAddr(text("namesrv"));
        asking.setMqClientApiTimeout(number("patience"));
        asking.setSendMsgTimeout(number("patience"));
        asking.setInstanceName("asking");
        asking.start();
        for (int i = 0; i < number("count"); i++) {
            Message reply = asking.request(new Message(text("topic"), "T", bytes("question" + i)), 20_000);
            line("reply", ",\"body\":\"" + safe(new String(reply.getBody(), StandardCharsets.UTF_8)) + "\"");
            consumed.incrementAndGet();
        }
        // A reply may be here before its sender hears that it was taken.
        for (int i = 0; i < 200 && answered.get() < number("count"); i++) {
            Thread.sleep(50);
        }
        asking.shutdown();
        consumer.shutdown();
        answering.shutdown();
    }

    private RPCHook hook() {
        if (!options.containsKey("accesskey")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(text("accesskey"), text("secretkey")));
    }

    private void await(int count) throws InterruptedException {
        long deadline = System.currentTimeMillis() + 60_000;
        while (consumed.get() < count && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
        }
    }

    private static void sent(SendResult result) {
        line("sent", ",\"status\":\"" + result.getSendStatus() + "\",\"id\":\"" + result.getMsgId() + "\"");
    }

    private static synchronized void line(String event, String fields) {
        OUT.println("{\"event\":\"" + event + "\"" + fields + "}");
        OUT.flush();
    }

    /** Fit for a JSON text. */
    private static String safe(String text) {
        StringBuilder safe = new StringBuilder();
        for (char c : String.valueOf(text).toCharArray()) {
            safe.append(c < 32 || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : c);
        }
        return safe.toString();
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
