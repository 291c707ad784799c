import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Uses each client against the cluster at args[0], and writes "client group name tags" for each of its metrics. */
public class MetricsOracle {
    static void write(String client, Map<MetricName, ? extends Metric> metrics) {
        for (MetricName name : metrics.keySet()) {
            System.out.println(client + " " + name.group() + " " + name.name() + " "
                + String.join(",", new TreeSet<>(name.tags().keySet())));
        }
    }

    static void consume(String servers, String protocol) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", servers);
        config.put("group.id", "oracle-" + protocol);
        config.put("group.protocol", protocol);
        config.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("measured"));
            while (consumer.poll(Duration.ofMillis(100)).isEmpty()) {
            }
            consumer.commitSync();
            write(protocol, consumer.metrics());
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[0]);
        config.put("transactional.id", "oracle");
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("measured", new byte[1])).get();
            producer.commitTransaction();
            write("producer", producer.metrics());
        }
        consume(args[0], "classic");
        consume(args[0], "consumer");
    }
}
