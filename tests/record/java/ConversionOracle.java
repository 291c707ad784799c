import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Converts batches as Kafka 3.9 does when it stores them and when it serves them to old readers. Each input line is a
 * task; each output line is its outcome or the name of an exception. Batches are hexadecimal.
 *
 * down MAGIC FIRST_OFFSET BATCHES
 * validate SOURCE_CODEC TARGET_CODEC COMPACTED MAGIC TIMESTAMP_TYPE BEFORE_MAX AFTER_MAX EPOCH NOW FIRST_OFFSET BATCHES
 *   The outcome: next offset, largest timestamp, batches.
 */
public class ConversionOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] task = line.split(" ", -1);
            try {
                System.out.println(task[0].equals("down") ? down(task) : validate(task));
            } catch (RecordValidationException e) {
                System.out.println(e.invalidException().getClass().getSimpleName() + " " + e.recordErrors().size());
            } catch (RuntimeException e) {
                System.out.println(e.getClass().getSimpleName());
            }
        }
    }

    private static MemoryRecords records(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
    }

    private static String hex(MemoryRecords records) {
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static Time at(long now) {
        return (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, arguments) -> method.getName().equals("milliseconds") ? now : 0L);
    }

    private static String down(String[] task) {
        MemoryRecords records = records(task[3]);
        return hex((MemoryRecords) records.downConvert(Byte.parseByte(task[1]), Long.parseLong(task[2]), at(0)).records());
    }

    private static String validate(String[] task) {
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(Long.parseLong(task[10]));
        LogValidator.MetricsRecorder metrics = (LogValidator.MetricsRecorder) Proxy.newProxyInstance(
            LogValidator.class.getClassLoader(), new Class<?>[] {LogValidator.MetricsRecorder.class}, (p, m, a) -> null);
        LogValidator validator = new LogValidator(
            records(task[11]), new TopicPartition("t", 0), at(Long.parseLong(task[9])), CompressionType.forName(task[1]),
            Compression.of(CompressionType.forName(task[2])).build(), Boolean.parseBoolean(task[3]),
            Byte.parseByte(task[4]), TimestampType.forName(task[5]), Long.parseLong(task[6]), Long.parseLong(task[7]),
            Integer.parseInt(task[8]), AppendOrigin.CLIENT, MetadataVersion.latestProduction());
        LogValidator.ValidationResult result =
            validator.validateMessagesAndAssignOffsets(offset, metrics, BufferSupplier.NO_CACHING);
        return offset.value + " " + result.maxTimestampMs + " " + hex(result.validatedRecords);
    }
}
