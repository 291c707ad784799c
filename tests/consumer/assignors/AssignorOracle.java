import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.*;

/**
 * Runs Java's assignors on what it reads from stdin. Strings as writeUTF, counts as int, bytes with their length as int.
 *
 * "assign": groups, each the assignor's name; topics (name, per partition the racks of its replicas); members (id,
 * instance id or "", the bytes of its subscription, which Java reads). Writes the assignment of each member, or -1 if the
 * assignor fails with a NullPointerException.
 *
 * "user-data": the assignor's name, a generation, the bytes of an assignment. Writes the user data that the assignor
 * sends after it got this assignment.
 */
public class AssignorOracle {
    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(new java.io.BufferedOutputStream(System.out));
        System.setOut(System.err); // Kafka's log
        int cases = in.readInt();
        for (int i = 0; i < cases; i++) {
            ConsumerPartitionAssignor assignor = assignor(in.readUTF());
            if (args[0].equals("assign"))
                assign(assignor, in, out);
            else
                writeUserData(assignor, in, out);
        }
        out.flush();
    }

    static ConsumerPartitionAssignor assignor(String name) {
        for (ConsumerPartitionAssignor each : List.of(
                new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor(), new CooperativeStickyAssignor()))
            if (each.name().equals(name))
                return each;
        throw new IllegalArgumentException(name);
    }

    static byte[] readBytes(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }

    static void writeBytes(DataOutputStream out, ByteBuffer buffer) throws IOException {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    static void writeUserData(ConsumerPartitionAssignor assignor, DataInputStream in, DataOutputStream out)
            throws IOException {
        int generation = in.readInt();
        Assignment assignment = ConsumerProtocol.deserializeAssignment(ByteBuffer.wrap(readBytes(in)));
        assignor.onAssignment(assignment, new ConsumerGroupMetadata("group", generation, "member", Optional.empty()));
        writeBytes(out, assignor.subscriptionUserData(Set.of()));
    }

    static Cluster readCluster(DataInputStream in) throws IOException {
        List<PartitionInfo> infos = new ArrayList<>();
        List<Node> nodes = new ArrayList<>();
        int topics = in.readInt();
        for (int t = 0; t < topics; t++) {
            String topic = in.readUTF();
            int partitions = in.readInt();
            for (int p = 0; p < partitions; p++) {
                Node[] replicas = new Node[in.readInt()];
                for (int r = 0; r < replicas.length; r++) {
                    String rack = in.readUTF();
                    int id = nodes.size();
                    replicas[r] = new Node(id, "host" + id, 9092, rack.isEmpty() ? null : rack);
                    nodes.add(replicas[r]);
                }
                infos.add(new PartitionInfo(topic, p, replicas[0], replicas, replicas));
            }
        }
        return new Cluster("id", nodes, infos, Set.of(), Set.of());
    }

    static void assign(ConsumerPartitionAssignor assignor, DataInputStream in, DataOutputStream out)
            throws IOException {
        Cluster cluster = readCluster(in);
        Map<String, Subscription> members = new HashMap<>();
        int count = in.readInt();
        for (int m = 0; m < count; m++) {
            String id = in.readUTF();
            String instance = in.readUTF();
            ByteBuffer bytes = ByteBuffer.wrap(readBytes(in));
            Subscription subscription = ConsumerProtocol.deserializeSubscription(bytes.duplicate());
            subscription.setGroupInstanceId(instance.isEmpty() ? Optional.empty() : Optional.of(instance));
            members.put(id, subscription);
            if (!ConsumerProtocol.serializeSubscription(subscription).equals(bytes))
                throw new IllegalStateException("Java writes the subscription of " + id + " differently");
        }
        Map<String, Assignment> assignments;
        try {
            assignments = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
        } catch (NullPointerException e) {
            out.writeInt(-1);
            return;
        }
        out.writeInt(assignments.size());
        for (Map.Entry<String, Assignment> entry : assignments.entrySet()) {
            out.writeUTF(entry.getKey());
            writeBytes(out, ConsumerProtocol.serializeAssignment(entry.getValue()));
        }
    }
}
