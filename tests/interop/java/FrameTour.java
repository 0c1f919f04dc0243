import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Uses the stock client in every common way once, so that a tap between it and its broker sees one
 * frame of each kind. Arguments: name server, topic, prefix of the group names.
 */
public final class FrameTour {
    private static String namesrv;
    private static String topic;
    private static String prefix;

    public static void main(String[] arguments) throws Exception {
        namesrv = arguments[0];
        topic = arguments[1];
        prefix = arguments[2];
        produce();
        transact();
        consumeConcurrently();
        consumeOrderly();
        pull();
        System.out.println("{\"event\":\"done\",\"count\":0,\"failed\":0,\"seconds\":0}");
        System.exit(0);
    }

    private static void produce() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(prefix + "producer");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        SendResult first = producer.send(message("plain", "héllo 消息"));
        producer.send(message("compressed", "0123456789".repeat(600)));
        producer.sendOneway(message("oneway", "no answer wanted"));
        Message delayed = message("delayed", "one second later");
        delayed.setDelayTimeLevel(1);
        producer.send(delayed);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            batch.add(message("batch-" + i, "part " + i));
        }
        producer.send(batch);
        try {
            producer.send(new Message("not a legal topic?", "x".getBytes(StandardCharsets.UTF_8)));
        } catch (Exception expected) {
            System.err.println(expected.getMessage());
        }
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            producer.maxOffset(queue);
            producer.minOffset(queue);
            producer.earliestMsgStoreTime(queue);
            producer.searchOffset(queue, System.currentTimeMillis() - 1000);
        }
        producer.viewMessage(topic, first.getOffsetMsgId());
        Thread.sleep(1500);
        producer.queryMessage(topic, "plain", 8, 0, System.currentTimeMillis() + 60_000);
        producer.shutdown();
    }

    private static void transact() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(prefix + "transactions");
        producer.setNamesrvAddr(namesrv);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        producer.sendMessageInTransaction(message("committed", "half"), LocalTransactionState.COMMIT_MESSAGE);
        producer.sendMessageInTransaction(message("rolled-back", "half"), LocalTransactionState.ROLLBACK_MESSAGE);
        producer.shutdown();
    }

    /** Two members of a group, so that the broker tells one of the other; one message fails once. */
    private static void consumeConcurrently() throws Exception {
        CountDownLatch seen = new CountDownLatch(7);
        AtomicInteger failures = new AtomicInteger(1);
        MessageListenerConcurrently listener = (messages, context) -> {
            messages.forEach(message -> seen.countDown());
            return failures.getAndDecrement() > 0
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        DefaultMQPushConsumer first = consumer("concurrent", "first");
        first.registerMessageListener(listener);
        first.start();
        seen.await(20, TimeUnit.SECONDS);
        DefaultMQPushConsumer second = consumer("concurrent", "second");
        second.registerMessageListener(listener);
        second.start();
        Thread.sleep(6000);
        second.shutdown();
        first.shutdown();
    }

    private static void consumeOrderly() throws Exception {
        CountDownLatch seen = new CountDownLatch(7);
        DefaultMQPushConsumer consumer = consumer("orderly", "only");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> seen.countDown());
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        seen.await(20, TimeUnit.SECONDS);
        Thread.sleep(2000);
        consumer.shutdown();
    }

    private static void pull() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(prefix + "pull");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(topic, "TagA || TagB");
        consumer.start();
        for (int i = 0; i < 5; i++) {
            consumer.poll(1000);
        }
        consumer.commitSync();
        consumer.shutdown();
    }

    private static DefaultMQPushConsumer consumer(String group, String instance) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(prefix + group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static Message message(String key, String body) {
        Message message = new Message(topic, "TagA", key, body.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("color", "grün");
        return message;
    }
}
