import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Light queues as the stock Java client fills and reads them.
 *
 * <p>Sends {@code --count} messages to one queue of {@code --topic}: all name the light queue all, each
 * other one names other, too. Then pulls both light queues to their ends and commits an offset. Reports are
 * JSON lines: {@code message}, {@code offset}, {@code done}.
 */
public final class LightQueues {
    // For routes, where the first TLS handshake of a virtual machine is in it.
    private static final int PATIENCE_MS = 20_000;

    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        String topic = options.get("topic");
        int count = Integer.parseInt(options.get("count"));
        DefaultMQProducer producer = new DefaultMQProducer(options.get("group") + "_senders", hook());
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        MessageQueue queue = producer.send(new Message(topic, "first".getBytes())).getMessageQueue();
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "T", ("m" + i).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("INNER_MULTI_DISPATCH", i % 2 == 0 ? "%LMQ%all" : "%LMQ%all,%LMQ%other");
            SendResult result = producer.send(message, queue);
            if (i == 0) {
                report("sent", "\"status\":\"" + result.getSendStatus() + "\"");
            }
        }
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("%LMQ%readers", hook());
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.start();
        consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
            .updateTopicRouteInfoFromNameServer(topic);
        read(consumer, new MessageQueue("%LMQ%all", queue.getBrokerName(), 0), count);
        read(consumer, new MessageQueue("%LMQ%other", queue.getBrokerName(), 0), count / 2);
        report("done", "\"count\":" + count);
        producer.shutdown();
        consumer.shutdown();
        System.exit(0);
    }

    /** Signs with the account of the environment; null without one. */
    private static RPCHook hook() {
        String name = System.getenv("INTEROP_ACCESS_KEY");
        return name == null
            ? null
            : new AclClientRPCHook(new SessionCredentials(name, System.getenv("INTEROP_SECRET_KEY")));
    }

    private static void read(DefaultMQPullConsumer consumer, MessageQueue queue, int count) throws Exception {
        long offset = 0;
        while (offset < count) {
            PullResult result = consumer.pullBlockIfNotFound(queue, "T", offset, 7);
            if (result.getPullStatus() == PullStatus.FOUND) {
                List<MessageExt> found = result.getMsgFoundList();
                for (MessageExt message : found) {
                    report("message", String.format(
                        "\"queue\":\"%s\",\"at\":%d,\"body\":\"%s\",\"topic\":\"%s\",\"offsets\":\"%s\"",
                        queue.getTopic(), offset++, new String(message.getBody(), StandardCharsets.UTF_8),
                        message.getTopic(), message.getProperty("INNER_MULTI_QUEUE_OFFSET")));
                }
            }
        }
        consumer.getDefaultMQPullConsumerImpl().updateConsumeOffset(queue, offset - 1);
        consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, offset - 1, false);
        report("offset", String.format("\"queue\":\"%s\",\"min\":%d,\"max\":%d,\"committed\":%d", queue.getTopic(),
            consumer.minOffset(queue), consumer.maxOffset(queue), consumer.fetchConsumeOffset(queue, true)));
    }

    private static synchronized void report(String event, String fields) {
        OUT.println("{\"event\":\"" + event + "\"," + fields + "}");
        OUT.flush();
    }
}
