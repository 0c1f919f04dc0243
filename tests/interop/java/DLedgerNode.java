// A stock DLedger member that answers lines with lines, as tests/replica_member.py does:
//
//     DLedgerNode SELF_ID PEERS DIRECTORY GROUP DATA_SEGMENT_BYTES INDEX_SEGMENT_BYTES BATCH_PUSH
//
//     state                  state ROLE LEADER TERM FIRST LAST COMMIT
//     append COUNT PREFIX    appended COUNT_DONE COUNT_FAILED
//     stop                   stopped

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

public final class DLedgerNode {
    private static final int SUCCESS = 200;

    private DLedgerNode() {
    }

    public static void main(String[] words) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.setSelfId(words[0]);
        config.setPeers(words[1]);
        config.setStoreBaseDir(words[2]);
        config.setGroup(words[3]);
        config.setStoreType(DLedgerConfig.FILE);
        config.setMappedFileSizeForEntryData(Integer.parseInt(words[4]));
        config.setMappedFileSizeForEntryIndex(Integer.parseInt(words[5]));
        config.setEnableBatchPush(Boolean.parseBoolean(words[6]));
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] command = line.split(" ");
            if (command[0].equals("state")) {
                System.out.println(state(server));
            } else if (command[0].equals("append")) {
                System.out.println(append(server, Integer.parseInt(command[1]), command[2]));
            } else if (command[0].equals("stop")) {
                server.shutdown();
                System.out.println("stopped");
                System.exit(0);
            }
        }
        System.exit(0);
    }

    private static String state(DLedgerServer server) {
        MemberState member = server.getMemberState();
        String leader = member.getLeaderId() == null ? "-" : member.getLeaderId();
        return "state " + member.getRole() + " " + leader + " " + member.currTerm()
            + " " + server.getDLedgerStore().getLedgerBeginIndex()
            + " " + server.getDLedgerStore().getLedgerEndIndex()
            + " " + server.getDLedgerStore().getCommittedIndex();
    }

    private static String append(DLedgerServer server, int count, String prefix) throws Exception {
        List<CompletableFuture<AppendEntryResponse>> answers = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            AppendEntryRequest request = new AppendEntryRequest();
            request.setGroup(server.getDLedgerConfig().getGroup());
            request.setRemoteId(server.getDLedgerConfig().getSelfId());
            request.setBody((prefix + i).getBytes(StandardCharsets.UTF_8));
            answers.add(server.handleAppend(request));
        }
        int done = 0;
        for (CompletableFuture<AppendEntryResponse> answer : answers) {
            if (answer.get(10, TimeUnit.SECONDS).getCode() == SUCCESS) {
                done++;
            }
        }
        return "appended " + done + " " + (count - done);
    }
}
