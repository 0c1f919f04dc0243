import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Queue;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.monitor.DeleteMsgsEvent;
import org.apache.rocketmq.tools.monitor.FailedMsgs;
import org.apache.rocketmq.tools.monitor.MonitorConfig;
import org.apache.rocketmq.tools.monitor.MonitorListener;
import org.apache.rocketmq.tools.monitor.MonitorService;
import org.apache.rocketmq.tools.monitor.UndoneMsgs;

/**
 * A stock consumer that filters by SQL92, a stock producer that traces, both at work all the time,
 * and mqadmin, in one JVM, so that a hundred runs of the tool do not start a hundred JVMs.
 *
 * <p>Arguments: name server, topic, topic of the work, group, expression. Commands are lines on
 * standard input, words with tabs between; an answer ends with a line that is END.
 *
 * <pre>
 * send COUNT        messages with the properties price=0.. and kind=a or b; prints the ids of the
 *                   first
 * work              from now on sends to the topic of the work, some messages a second
 * worked            how many of those were sent, and how many the consumer has consumed
 * got               prices that the consumer has consumed, in any order
 * client            the consumer's client id
 * run WORD...       mqadmin with these arguments; prints what it printed on both outputs
 * cut LINES WORD... the same, interrupted after some lines: for what goes on for ever
 * monitor           one round of what startMonitoring does each minute
 * </pre>
 */
public final class AdminTour {
    private static final PrintStream OUT = System.out;
    private static final Queue<String> GOT = new ConcurrentLinkedQueue<>();
    private static final int WORK_PAUSE_MS = 40;
    private static final int CUT_PATIENCE_MS = 60_000;
    private static volatile int sent;
    private static volatile int done;

    private AdminTour() {}

    public static void main(String[] arguments) throws Exception {
        // Threads of the clients would keep the program alive that nobody listens to any more.
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
        String topic = arguments[1];
        String workTopic = arguments[2];
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(arguments[3], hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setInstanceName("tour");
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, MessageSelector.bySql(arguments[4]));
        consumer.subscribe(workTopic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                if (message.getTopic().equals(topic)) {
                    GOT.add(message.getUserProperty("price"));
                } else {
                    done++;
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("tour_producers", hook(), true, null);
        producer.setNamesrvAddr(arguments[0]);
        producer.setInstanceName("tour-producer");
        producer.setSendMsgTimeout(15_000);
        producer.start();
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "send" -> send(producer, topic, Integer.parseInt(words[1]));
                case "work" -> work(producer, workTopic);
                case "worked" -> OUT.println(sent + " " + done);
                case "got" -> OUT.println(String.join(" ", GOT));
                case "client" -> OUT.println(consumer.buildMQClientId());
                case "run" -> run(words, 1, 0);
                case "cut" -> run(words, 2, Integer.parseInt(words[1]));
                case "monitor" -> monitor(arguments[0]);
                default -> OUT.println("unknown command " + words[0]);
            }
            OUT.println("END");
            OUT.flush();
        }
        System.exit(0);
    }

    /** Signs with the account of the environment; null without one. */
    private static RPCHook hook() {
        String name = System.getenv("INTEROP_ACCESS_KEY");
        return name == null
            ? null
            : new AclClientRPCHook(new SessionCredentials(name, System.getenv("INTEROP_SECRET_KEY")));
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

    private static void work(DefaultMQProducer producer, String topic) {
        Thread thread = new Thread(() -> {
            while (true) {
                try {
                    producer.send(new Message(topic, "work", "w" + sent, new byte[100]));
                    sent++;
                    Thread.sleep(WORK_PAUSE_MS);
                } catch (Exception error) {
                    System.err.println("work: " + error);
                }
            }
        }, "work");
        thread.setDaemon(true);
        thread.start();
    }

    private static void run(String[] words, int from, int lines) throws Exception {
        String[] arguments = new String[words.length - from];
        System.arraycopy(words, from, arguments, 0, arguments.length);
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(both);
        System.setErr(both);
        try {
            if (lines == 0) {
                MQAdminStartup.main0(arguments, null);
            } else {
                Thread thread = new Thread(() -> MQAdminStartup.main0(arguments, null));
                thread.start();
                long deadlineMs = System.currentTimeMillis() + CUT_PATIENCE_MS;
                while (printed.toString(StandardCharsets.UTF_8).lines().count() < lines
                    && thread.isAlive() && System.currentTimeMillis() < deadlineMs) {
                    Thread.sleep(20);
                }
                thread.interrupt();
                thread.join();
            }
        } finally {
            System.setOut(OUT);
            System.setErr(err);
        }
        OUT.println(printed.toString(StandardCharsets.UTF_8));
    }

    private static void monitor(String nameServer) throws Exception {
        MonitorConfig config = new MonitorConfig();
        config.setNamesrvAddr(nameServer);
        TreeSet<String> lines = new TreeSet<>();
        MonitorService service = new MonitorService(config, new Reports(lines), hook());
        service.start();
        try {
            service.doMonitorWork();
        } finally {
            service.shutdown();
        }
        lines.forEach(OUT::println);
    }

    private record Reports(TreeSet<String> lines) implements MonitorListener {
        @Override
        public void beginRound() {
            lines.add("begin");
        }

        @Override
        public void reportUndoneMsgs(UndoneMsgs undone) {
            lines.add("undone " + undone.getConsumerGroup() + " " + undone.getTopic());
        }

        @Override
        public void reportFailedMsgs(FailedMsgs failed) {
            lines.add("failed " + failed.getConsumerGroup());
        }

        @Override
        public void reportDeleteMsgsEvent(DeleteMsgsEvent event) {
            lines.add("deleted " + event.getOffsetMovedEvent().getConsumerGroup());
        }

        @Override
        public void reportConsumerRunningInfo(TreeMap<String, ConsumerRunningInfo> infos) {
            infos.values().forEach(info -> info.getStatusTable().keySet()
                .forEach(topic -> lines.add("running " + topic)));
        }

        @Override
        public void endRound() {
            lines.add("end");
        }
    }
}
