import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group: ShareMember BOOTSTRAP GROUP TOPIC
 *
 * Prints the value and the delivery count of each record. Releases even numbers at their first delivery, and accepts all
 * other records. Leaves when stdin ends.
 */
public class ShareMember {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "share.acknowledgement.mode", "explicit",
            "share.acquire.mode", "record_limit", "max.poll.records", "5"));
        try (KafkaShareConsumer<String, String> consumer =
                 new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            Thread waiting = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) { }
                } catch (java.io.IOException e) {
                    throw new java.io.UncheckedIOException(e);
                }
            });
            waiting.setDaemon(true);
            waiting.start();
            while (waiting.isAlive()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    short count = record.deliveryCount().get();
                    boolean isReleased = count == 1 && Integer.parseInt(record.value()) % 2 == 0;
                    consumer.acknowledge(record, isReleased ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    out.println((isReleased ? "released" : "accepted") + "\t" + record.value() + "\t" + count);
                    out.flush();
                }
                consumer.commitSync();
            }
        }
    }
}
