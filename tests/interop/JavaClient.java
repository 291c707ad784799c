import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer and consumer, driven by tab-separated lines. Bytes are hexadecimal, "-" is null.
 *
 *   write BOOTSTRAP             stdin: codec, topic, timestamp or -, key, value, headers (name=value,...); stdout: partition, offset
 *   transactions BOOTSTRAP TOPIC   stdin: commit or abort, values separated by commas; stdout: nothing
 *   read BOOTSTRAP              stdin: topic, count; stdout: topic, partition, offset, type, timestamp, key, value, headers
 *   group BOOTSTRAP GROUP TOPIC VALUE  reads as a member until VALUE was read from each partition, commits, leaves;
 *                               stdout: partition, offset
 */
public class JavaClient {
    private static final HexFormat HEX = HexFormat.of();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "write" -> write(args[1]);
            case "transactions" -> transactions(args[1], args[2]);
            case "read" -> read(args[1]);
            case "group" -> group(args[1], args[2], args[3], args[4]);
            default -> throw new IllegalArgumentException(args[0]);
        }
        OUT.flush();
    }

    private static void write(String bootstrap) throws Exception {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        List<Future<RecordMetadata>> written = new ArrayList<>();
        for (String line : stdin()) {
            String[] columns = line.split("\t", -1);
            KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(columns[0],
                codec -> producer(bootstrap, Map.of("compression.type", codec, "linger.ms", "20")));
            Long timestamp = columns[2].equals("-") ? null : Long.valueOf(columns[2]);
            ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(columns[1], null, timestamp, bytes(columns[3]), bytes(columns[4]));
            for (String header : columns[5].isEmpty() ? new String[0] : columns[5].split(",")) {
                String[] parts = header.split("=", -1);
                record.headers().add(new String(bytes(parts[0]), StandardCharsets.UTF_8), bytes(parts[1]));
            }
            written.add(producer.send(record));
        }
        producers.values().forEach(KafkaProducer::close);
        for (Future<RecordMetadata> future : written)
            OUT.println(future.get().partition() + "\t" + future.get().offset());
    }

    private static void transactions(String bootstrap, String topic) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, Map.of("transactional.id", topic))) {
            producer.initTransactions();
            for (String line : stdin()) {
                String[] columns = line.split("\t", -1);
                producer.beginTransaction();
                for (String value : columns[1].split(","))
                    producer.send(new ProducerRecord<>(topic, bytes(value)));
                producer.flush();
                if (columns[0].equals("commit"))
                    producer.commitTransaction();
                else
                    producer.abortTransaction();
            }
        }
    }

    private static void read(String bootstrap) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of("fetch.max.wait.ms", "20"))) {
            for (String line : stdin()) {
                String[] columns = line.split("\t");
                List<TopicPartition> partitions = consumer.partitionsFor(columns[0]).stream()
                    .map(info -> new TopicPartition(info.topic(), info.partition())).toList();
                consumer.assign(partitions);
                consumer.seekToBeginning(partitions);
                int missing = Integer.parseInt(columns[1]);
                long deadline = System.currentTimeMillis() + 30_000;
                while (missing > 0) {
                    if (System.currentTimeMillis() > deadline)
                        throw new IllegalStateException(columns[0] + ": " + missing + " records are missing");
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        print(record);
                        missing--;
                    }
                }
            }
        }
    }

    private static void group(String bootstrap, String group, String topic, String last) {
        Map<String, String> settings = Map.of("group.id", group, "enable.auto.commit", "false",
            "auto.offset.reset", "earliest", "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.RangeAssignor");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, settings)) {
            Set<TopicPartition> done = new java.util.HashSet<>();
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    consumer.commitSync();
                }
                @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                }
            });
            long deadline = System.currentTimeMillis() + 40_000;
            while (consumer.assignment().isEmpty() || !done.containsAll(consumer.assignment())) {
                if (System.currentTimeMillis() > deadline)
                    throw new IllegalStateException("only " + done + " of " + consumer.assignment());
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    OUT.println(record.partition() + "\t" + record.offset());
                    if (HEX.formatHex(record.value()).equals(last))
                        done.add(new TopicPartition(topic, record.partition()));
                }
            }
            consumer.commitSync();
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, Map<String, String> settings) {
        Properties properties = new Properties();
        properties.putAll(settings);
        properties.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, Map<String, String> settings) {
        Properties properties = new Properties();
        properties.putAll(settings);
        properties.put("bootstrap.servers", bootstrap);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void print(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers())
            headers.add(hex(header.key().getBytes(StandardCharsets.UTF_8)) + "=" + hex(header.value()));
        OUT.println(String.join("\t", record.topic(), "" + record.partition(), "" + record.offset(),
            "" + record.timestampType().id, "" + record.timestamp(), hex(record.key()), hex(record.value()),
            String.join(",", headers)));
    }

    private static List<String> stdin() throws Exception {
        return new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).lines().toList();
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : HEX.parseHex(text);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : HEX.formatHex(bytes);
    }
}
