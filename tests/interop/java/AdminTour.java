import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * A stock consumer that filters by SQL92, a stock producer, and mqadmin, in one JVM, so that a
 * hundred runs of the tool do not start a hundred JVMs.
 *
 * <p>Arguments: name server, topic, group, expression. Commands are lines on standard input, words
 * with tabs between; an answer ends with a line that is END.
 *
 * <pre>
 * send COUNT    messages with the properties price=0.. and kind=a or b; prints the ids of the first
 * got           prices that the consumer has consumed, in any order
 * client        the consumer's client id
 * run WORD...   mqadmin with these arguments; prints what it printed on both outputs
 * </pre>
 */
public final class AdminTour {
    private static final PrintStream OUT = System.out;
    private static final Queue<String> GOT = new ConcurrentLinkedQueue<>();

    private AdminTour() {}

    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setInstanceName("tour");
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], MessageSelector.bySql(arguments[3]));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> GOT.add(message.getUserProperty("price")));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("tour_producers");
        producer.setNamesrvAddr(arguments[0]);
        producer.setInstanceName("tour-producer");
        producer.setSendMsgTimeout(15_000);
        producer.start();
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "send" -> send(producer, arguments[1], Integer.parseInt(words[1]));
                case "got" -> OUT.println(String.join(" ", GOT));
                case "client" -> OUT.println(consumer.buildMQClientId());
                case "run" -> run(words);
                default -> OUT.println("unknown command " + words[0]);
            }
            OUT.println("END");
            OUT.flush();
        }
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, int count)
        throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "tag", "key" + i, ("body " + i).getBytes());
            message.putUserProperty("price", Integer.toString(i));
            message.putUserProperty("kind", i % 2 == 0 ? "a" : "b");
            SendResult result = producer.send(message);
            if (i == 0) {
                OUT.println(result.getOffsetMsgId() + " " + result.getMsgId());
            }
        }
    }

    private static void run(String[] words) throws Exception {
        String[] arguments = new String[words.length - 1];
        System.arraycopy(words, 1, arguments, 0, arguments.length);
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(both);
        System.setErr(both);
        try {
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.setOut(OUT);
            System.setErr(err);
        }
        OUT.println(printed.toString(StandardCharsets.UTF_8));
    }
}
