import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.*;

/**
 * Reads groups from stdin until it ends, assigns with Java's assignors, writes what each member got.
 *
 * A group: the assignor's name; topics (name, per partition the racks of its replicas); members (id, instance id or "",
 * the bytes of its subscription, which Java reads). Strings as writeUTF, counts as int.
 */
public class AssignorOracle {
    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        int groups = in.readInt();
        for (int g = 0; g < groups; g++) {
            ConsumerPartitionAssignor assignor = in.readUTF().equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
            List<PartitionInfo> infos = new ArrayList<>();
            Map<Integer, Node> nodes = new HashMap<>();
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
                        nodes.put(id, replicas[r]);
                    }
                    infos.add(new PartitionInfo(topic, p, replicas[0], replicas, replicas));
                }
            }
            Cluster cluster = new Cluster("id", nodes.values(), infos, Set.of(), Set.of());
            Map<String, Subscription> members = new HashMap<>();
            int count = in.readInt();
            for (int m = 0; m < count; m++) {
                String id = in.readUTF();
                String instance = in.readUTF();
                byte[] bytes = new byte[in.readInt()];
                in.readFully(bytes);
                Subscription subscription = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(bytes));
                subscription.setGroupInstanceId(instance.isEmpty() ? Optional.empty() : Optional.of(instance));
                members.put(id, subscription);
                ByteBuffer again = ConsumerProtocol.serializeSubscription(subscription);
                if (!again.equals(ByteBuffer.wrap(bytes)))
                    throw new IllegalStateException("Java writes the subscription of " + id + " differently");
            }
            Map<String, Assignment> assignments = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
            out.writeInt(assignments.size());
            for (Map.Entry<String, Assignment> entry : assignments.entrySet()) {
                out.writeUTF(entry.getKey());
                ByteBuffer buffer = ConsumerProtocol.serializeAssignment(entry.getValue());
                byte[] bytes = new byte[buffer.remaining()];
                buffer.get(bytes);
                out.writeInt(bytes.length);
                out.write(bytes);
            }
        }
        out.flush();
    }
}
