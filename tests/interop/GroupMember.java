import java.io.PrintStream;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group: GroupMember BOOTSTRAP GROUP TOPIC [ASSIGNOR | "consumer", for the protocol of KIP-848]
 *
 * Prints "assigned", "revoked" or "lost" and the partitions, separated by commas, as its listener hears of them. Leaves
 * when stdin ends.
 */
public class GroupMember {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "heartbeat.interval.ms", "100",
            "enable.auto.commit", "false"));
        if (args.length > 3 && args[3].equals("consumer")) {
            settings.put("group.protocol", "consumer");
            settings.remove("heartbeat.interval.ms");
        } else if (args.length > 3)
            settings.put("partition.assignment.strategy", args[3]);
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]), new ConsumerRebalanceListener() {
                private void print(String what, Collection<TopicPartition> partitions) {
                    out.println(what + "\t" + partitions.stream()
                        .map(tp -> "" + tp.partition()).collect(Collectors.joining(",")));
                    out.flush();
                }
                @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    print("assigned", partitions);
                }
                @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    print("revoked", partitions);
                }
                @Override public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    print("lost", partitions);
                }
            });
            Thread waiting = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) { }
                } catch (java.io.IOException e) {
                    throw new java.io.UncheckedIOException(e);
                }
            });
            waiting.start();
            while (waiting.isAlive())
                consumer.poll(Duration.ofMillis(50));
            // By default it awaits the end of a rebalance in which it takes part.
            consumer.close(CloseOptions.timeout(Duration.ofSeconds(1)));
        }
    }
}
