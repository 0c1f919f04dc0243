package org.apache.rocketmq.test.base;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.util.MQAdmin;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.junit.Assert;

/**
 * Gives Apache's tests LedgerMQ where they ask for a name server and for brokers.
 *
 * <p>It stands before the class of the same name on the class path; no other class is replaced. The
 * first two brokers and the name server are processes that serve already, named by system
 * properties. A broker with settings of its own is a process that is started here, and its offsets
 * are asked from it by a stock client.
 */
public class IntegrationTestBase {
    private static final long READY_MS = 60_000;
    private static final List<Process> PROCESSES = new ArrayList<>();
    private static int given = 0;

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> PROCESSES.forEach(Process::destroy)));
    }

    /** Returns a port of loopback that is free, with those that a broker takes beside it. */
    public static int nextPort() {
        for (int tries = 0; tries < 100; tries++) {
            try (ServerSocket first = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                int port = first.getLocalPort();
                if (port > 2 && isFree(port - 2) && isFree(port + 1)) {
                    return port;
                }
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
        throw new IllegalStateException("no three free ports in 100 tries");
    }

    private static boolean isFree(int port) {
        try (ServerSocket one = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
            return true;
        } catch (IOException error) {
            return false;
        }
    }

    /** Returns a folder that does not exist yet. */
    public static String createBaseDir() {
        try {
            return Files.createTempDirectory("store").resolve("made").toString();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Returns what tells the address of the name server that serves; it is never started itself. */
    public static NamesrvController createAndStartNamesrv() {
        NettyServerConfig netty = new NettyServerConfig();
        netty.setListenPort(Integer.getInteger("ledgermq.namesrv.port"));
        return new NamesrvController(new NamesrvConfig(), netty);
    }

    /** Returns what tells the names of the next of the brokers that serve. */
    public static synchronized BrokerController createAndStartBroker(String nsAddr) {
        String[] names = System.getProperty("ledgermq.brokers").split(",");
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName(names[given++]);
        config.setBrokerClusterName(System.getProperty("ledgermq.cluster"));
        config.setNamesrvAddr(nsAddr);
        return new OutsideBroker(config, new NettyServerConfig(), new MessageStoreConfig(), null);
    }

    /** Starts a LedgerMQ broker with these settings; returns when the name server knows it. */
    public static BrokerController createAndStartBroker(
        MessageStoreConfig store, BrokerConfig config) {
        NettyServerConfig netty = new NettyServerConfig();
        netty.setListenPort(nextPort());
        Path root = Path.of(store.getStorePathRootDir());
        List<String> command =
            new ArrayList<>(List.of(System.getProperty("ledgermq.command").split("\u001f")));
        command.addAll(List.of(
            "broker",
            "listenPort=" + netty.getListenPort(),
            "brokerIP1=" + config.getBrokerIP1(),
            "namesrvAddr=" + config.getNamesrvAddr(),
            "brokerName=" + config.getBrokerName(),
            "brokerClusterName=" + config.getBrokerClusterName(),
            "storePathRootDir=" + root,
            "storePathCommitLog=" + store.getStorePathCommitLog(),
            "mappedFileSizeCommitLog=" + store.getMappedFileSizeCommitLog(),
            "enableDLegerCommitLog=" + store.isEnableDLegerCommitLog(),
            "dLegerGroup=" + store.getdLegerGroup(),
            "dLegerSelfId=" + store.getdLegerSelfId(),
            "dLegerPeers=" + store.getdLegerPeers()));
        try {
            Files.createDirectories(root);
            ProcessBuilder builder = new ProcessBuilder(command);
            builder.redirectErrorStream(true).redirectOutput(root.resolve("broker.log").toFile());
            Process process = builder.start();
            PROCESSES.add(process);
            waitUntilRegistered(config, process, root.resolve("broker.log"));
            // A master is registered with the id 0 by its leader alone.
            store.setBrokerRole(BrokerRole.SYNC_MASTER);
            return new OutsideBroker(config, netty, store, process);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void waitUntilRegistered(BrokerConfig config, Process process, Path log)
        throws Exception {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(READY_MS);
        DefaultMQAdminExt admin = admin(config);
        try {
            while (true) {
                BrokerData data = admin.examineBrokerClusterInfo().getBrokerAddrTable()
                    .get(config.getBrokerName());
                if (data != null && data.getBrokerAddrs().containsKey(MixAll.MASTER_ID)) {
                    return;
                }
                if (!process.isAlive() || System.nanoTime() > end) {
                    throw new IllegalStateException("no broker: " + Files.readString(log));
                }
                Thread.sleep(100);
            }
        } finally {
            admin.shutdown();
        }
    }

    static DefaultMQAdminExt admin(BrokerConfig config) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setInstanceName("admin-" + System.nanoTime());
        admin.setNamesrvAddr(config.getNamesrvAddr());
        admin.start();
        return admin;
    }

    /** Makes a topic; the test fails when that does not succeed in half a minute. */
    public static boolean initTopic(String topic, String nsAddr, String cluster, int queues) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (!MQAdmin.createTopic(nsAddr, cluster, topic, queues)) {
            Assert.assertTrue("topic " + topic + " was not made in 30 s", System.nanoTime() < end);
        }
        return true;
    }

    /** Makes a topic of eight queues. */
    public static boolean initTopic(String topic, String nsAddr, String cluster) {
        return initTopic(topic, nsAddr, cluster, 8);
    }

    /** Deletes a file or a folder. */
    public static void deleteFile(File file) {
        UtilAll.deleteFile(file);
    }

    /** A broker in another process, seen as the tests see one; what they do not ask is refused. */
    private static final class OutsideBroker extends BrokerController {
        private final Process process;

        OutsideBroker(
            BrokerConfig config, NettyServerConfig netty, MessageStoreConfig store, Process process) {
            super(config, netty, new NettyClientConfig(), store);
            this.process = process;
        }

        @Override
        public MessageStore getMessageStore() {
            ClassLoader loader = MessageStore.class.getClassLoader();
            return (MessageStore) Proxy.newProxyInstance(
                loader, new Class<?>[] {MessageStore.class}, (proxy, method, arguments) -> {
                    String name = method.getName();
                    boolean isMin = name.equals("getMinOffsetInQueue");
                    if (!isMin && !name.equals("getMaxOffsetInQueue")) {
                        throw new UnsupportedOperationException(name);
                    }
                    MessageQueue queue = new MessageQueue(
                        (String) arguments[0], getBrokerConfig().getBrokerName(), (int) arguments[1]);
                    DefaultMQAdminExt admin = admin(getBrokerConfig());
                    try {
                        return isMin ? admin.minOffset(queue) : admin.maxOffset(queue);
                    } finally {
                        admin.shutdown();
                    }
                });
        }

        @Override
        public void shutdown() {
            if (process != null) {
                process.destroy();
            }
        }
    }
}
