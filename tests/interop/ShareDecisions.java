import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group, with Kafka's own client.
 *
 *   BOOTSTRAP GROUP TOPIC COUNT   acknowledges records until COUNT of them are accepted or rejected, and prints a line
 *                                 for each delivery: its offset, delivery count and value, and what was decided.
 *                                 A value says that by its first letter: r(elease) on the first delivery and then
 *                                 accept, x: reject, n: re(n)ew, and accept when it
 *                                 is returned again, anything else: accept
 */
public class ShareDecisions {
    public static void main(String[] args) {
        int count = Integer.parseInt(args[3]);
        Map<String, Object> config = Map.of("bootstrap.servers", args[0], "group.id", args[1],
            "share.acknowledgement.mode", "explicit");
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                 new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            Set<String> renewed = new HashSet<>();
            long deadline = System.currentTimeMillis() + 40_000;
            for (int done = 0; done < count; ) {
                if (System.currentTimeMillis() > deadline)
                    throw new IllegalStateException("only " + done + " of " + count);
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    String value = new String(record.value(), StandardCharsets.UTF_8);
                    short deliveries = record.deliveryCount().orElseThrow();
                    boolean isNew = renewed.add(record.partition() + "-" + record.offset());
                    AcknowledgeType type = decide(value, deliveries, isNew);
                    consumer.acknowledge(record, type);
                    System.out.println(record.offset() + " " + deliveries + " " + value + " " + type);
                    if (type == AcknowledgeType.ACCEPT || type == AcknowledgeType.REJECT)
                        done++;
                }
                commit(consumer);
            }
        }
    }

    private static AcknowledgeType decide(String value, short deliveries, boolean isNew) {
        switch (value.charAt(0)) {
            case 'r': return deliveries == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
            case 'x': return AcknowledgeType.REJECT;
            case 'n': return isNew ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
            default: return AcknowledgeType.ACCEPT;
        }
    }

    private static void commit(KafkaShareConsumer<byte[], byte[]> consumer) {
        for (Map.Entry<TopicIdPartition, java.util.Optional<KafkaException>> each : consumer.commitSync().entrySet())
            each.getValue().ifPresent(error -> { throw error; });
    }
}
