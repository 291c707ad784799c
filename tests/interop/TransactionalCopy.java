import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic exactly once, with Kafka's own clients from 2.5 on.
 *
 *   BOOTSTRAP GROUP FROM TO COUNT   reads COUNT records as a member, and writes them and its offsets in transactions;
 *                                   every other transaction is aborted first, and done again
 */
public class TransactionalCopy {
    public static void main(String[] args) {
        String bootstrap = args[0], group = args[1], from = args[2], to = args[3];
        int count = Integer.parseInt(args[4]);
        Map<String, Object> reading = Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "enable.auto.commit", "false", "auto.offset.reset", "earliest", "isolation.level", "read_committed",
            "max.poll.records", "7");
        Map<String, Object> writing = Map.of("bootstrap.servers", bootstrap, "transactional.id", group);
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(from));
            long deadline = System.currentTimeMillis() + 40_000;
            for (int done = 0, round = 0; done < count; ) {
                if (System.currentTimeMillis() > deadline)
                    throw new IllegalStateException("only " + done + " of " + count);
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty())
                    continue;
                for (boolean aborted = round++ % 2 == 1; ; aborted = false) {
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        producer.send(new ProducerRecord<>(to, record.value()));
                        offsets.put(new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    if (!aborted) {
                        producer.commitTransaction();
                        break;
                    }
                    producer.flush();
                    producer.abortTransaction();
                }
                done += records.count();
            }
        }
    }
}
