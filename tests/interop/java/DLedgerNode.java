// A stock DLedger member that answers lines with lines, as tests/replica_member.py does:
//
//     DLedgerNode SELF_ID PEERS DIRECTORY GROUP DATA_SEGMENT_BYTES INDEX_SEGMENT_BYTES BATCH_PUSH
//         THROTTLE_FAR_BYTES THROTTLE_QUOTA_BYTES
//
//     state                  state ROLE LEADER TERM FIRST LAST COMMIT
//     append COUNT PREFIX    appended COUNT_DONE COUNT_FAILED
//     leave COUNT PREFIX     left COUNT; what becomes of them is not told
//     digest                 digest COUNT SHA256, of the bodies of all entries
//     stop                   stopped

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.store.DLedgerStore;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

public final class DLedgerNode {
    private static final int SUCCESS = 200;
    private static final int WINDOW = 250;
    // A busy machine is no reason to give an append up.
    private static final int ACK_MS = 20_000;

    private static DLedgerConfig config;
    private static DLedgerStore store;

    private DLedgerNode() {
    }

    public static void main(String[] words) throws Exception {
        config = new DLedgerConfig();
        config.setSelfId(words[0]);
        config.setPeers(words[1]);
        config.setStoreBaseDir(words[2]);
        config.setGroup(words[3]);
        config.setStoreType(DLedgerConfig.FILE);
        config.setMappedFileSizeForEntryData(Integer.parseInt(words[4]));
        config.setMappedFileSizeForEntryIndex(Integer.parseInt(words[5]));
        config.setEnableBatchPush(Boolean.parseBoolean(words[6]));
        config.setPeerPushThrottlePoint(Integer.parseInt(words[7]));
        config.setPeerPushQuota(Integer.parseInt(words[8]));
        config.setMaxWaitAckTimeMs(ACK_MS);
        DLedgerServer server = new DLedgerServer(config);
        store = storeOf(server);
        server.startup();
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] command = line.split(" ");
            if (command[0].equals("state")) {
                System.out.println(state(server));
            } else if (command[0].equals("append")) {
                System.out.println(append(server, Integer.parseInt(command[1]), command[2]));
            } else if (command[0].equals("leave")) {
                begin(server, 0, Integer.parseInt(command[1]), command[2]);
                System.out.println("left " + command[1]);
            } else if (command[0].equals("digest")) {
                System.out.println(digest(server));
            } else if (command[0].equals("stop")) {
                server.shutdown();
                System.out.println("stopped");
                System.exit(0);
            }
        }
        System.exit(0);
    }

    // The getter is getdLedgerStore up to 0.2.x and getDLedgerStore from 0.3.0.
    private static DLedgerStore storeOf(DLedgerServer server) throws Exception {
        for (Method method : DLedgerServer.class.getMethods()) {
            if (method.getName().equalsIgnoreCase("getDLedgerStore")) {
                return (DLedgerStore) method.invoke(server);
            }
        }
        throw new NoSuchMethodException("getDLedgerStore");
    }

    private static String state(DLedgerServer server) {
        MemberState member = server.getMemberState();
        String leader = member.getLeaderId() == null ? "-" : member.getLeaderId();
        return "state " + member.getRole() + " " + leader + " " + member.currTerm()
            + " " + store.getLedgerBeginIndex()
            + " " + store.getLedgerEndIndex()
            + " " + store.getCommittedIndex();
    }

    private static List<CompletableFuture<AppendEntryResponse>> begin(
        DLedgerServer server, int start, int end, String prefix) throws Exception {
        List<CompletableFuture<AppendEntryResponse>> answers = new ArrayList<>();
        for (int i = start; i < end; i++) {
            AppendEntryRequest request = new AppendEntryRequest();
            request.setGroup(config.getGroup());
            request.setRemoteId(config.getSelfId());
            request.setBody((prefix + i).getBytes(StandardCharsets.UTF_8));
            answers.add(server.handleAppend(request));
        }
        return answers;
    }

    private static String append(DLedgerServer server, int count, String prefix) throws Exception {
        int done = 0;
        // So many at a time that none waits longer than its time-out.
        for (int start = 0; start < count; start += WINDOW) {
            int end = Math.min(count, start + WINDOW);
            for (CompletableFuture<AppendEntryResponse> answer : begin(server, start, end, prefix)) {
                int code = answer.get(ACK_MS + 5_000, TimeUnit.MILLISECONDS).getCode();
                if (code == SUCCESS) {
                    done++;
                } else {
                    System.err.println("an append was answered " + code);
                }
            }
        }
        return "appended " + done + " " + (count - done);
    }

    private static String digest(DLedgerServer server) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        long first = Math.max(store.getLedgerBeginIndex(), 0);
        long end = store.getLedgerEndIndex() + 1;
        for (long index = first; index < end; index++) {
            digest.update(store.get(index).getBody());
        }
        StringBuilder text = new StringBuilder();
        for (byte part : digest.digest()) {
            text.append(String.format("%02x", part));
        }
        return "digest " + (end - first) + " " + text;
    }
}
