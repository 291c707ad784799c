import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints the keys that Java's KafkaShareConsumer refuses, as a list in JSON. */
public class ShareConfigOracle {
    private static final Map<String, Object> VALUES = Map.of(
        "group.instance.id", "i", "group.remote.assignor", "uniform", "auto.offset.reset", "earliest");

    public static void main(String[] args) {
        List<String> refused = new ArrayList<>();
        for (String key : ConsumerConfig.configNames()) {
            Object value = VALUES.getOrDefault(key, ConsumerConfig.configDef().defaultValues().get(key));
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", "127.0.0.1:1");
            settings.put("group.id", "g");
            settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
            settings.putIfAbsent(key, value == null || value instanceof org.apache.kafka.common.config.types.Password ? null : value);
            try {
                new KafkaShareConsumer<byte[], byte[]>(settings).close(java.time.Duration.ZERO);
            } catch (ConfigException error) {
                if (error.getMessage().contains("share group")) refused.add('"' + key + '"');
            } catch (RuntimeException error) {
                // a value that does not fit, which is not the question here
            }
        }
        System.out.println("[" + String.join(", ", refused) + "]");
    }
}
