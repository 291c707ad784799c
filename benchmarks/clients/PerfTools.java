import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.tools.ConsumerPerformance;
import org.apache.kafka.tools.ProducerPerformance;

/**
 * Kafka's performance tools, twice in one virtual machine: the first run lets it compile, the second one is measured.
 *
 * <p>{@code PerfTools produce|consume WARM-UP-ARGUMENTS -- ARGUMENTS} or {@code PerfTools latency SERVERS TOPIC SIZE
 * COUNT}. The last line printed is JSON.
 */
public final class PerfTools {
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] args) throws Exception {
        double startCpu = SYSTEM.getProcessCpuTime() / 1e9;
        double start = (System.currentTimeMillis() - ManagementFactory.getRuntimeMXBean().getStartTime()) / 1e3;
        double[] latencies = {};
        long before;
        if (args[0].equals("latency")) {
            try (KafkaProducer<byte[], byte[]> producer = oneAtATime(args[1])) {
                ProducerRecord<byte[], byte[]> sent = new ProducerRecord<>(args[2], new byte[Integer.parseInt(args[3])]);
                latencies(producer, sent, 5000);
                before = SYSTEM.getProcessCpuTime();
                latencies = latencies(producer, sent, Integer.parseInt(args[4]));
            }
        } else {
            int middle = Arrays.asList(args).indexOf("--");
            run(args[0], Arrays.copyOfRange(args, 1, middle));
            before = SYSTEM.getProcessCpuTime();
            run(args[0], Arrays.copyOfRange(args, middle + 1, args.length));
        }
        double cpu = (SYSTEM.getProcessCpuTime() - before) / 1e9;
        System.out.printf(
            "{\"start_cpu_s\": %.3f, \"start_s\": %.3f, \"cpu_s\": %.6f, \"peak_rss_kb\": %d, \"latencies_ms\": %s}%n",
            startCpu, start, cpu, peakKilobytes(), Arrays.toString(latencies));
    }

    private static void run(String tool, String[] arguments) throws Exception {
        if (tool.equals("produce")) {
            ProducerPerformance.main(arguments);
        } else {
            ConsumerPerformance.main(arguments);
        }
    }

    /** No tool sends one record at a time. */
    private static KafkaProducer<byte[], byte[]> oneAtATime(String servers) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("acks", "all");
        properties.put("linger.ms", "0");
        ByteArraySerializer bytes = new ByteArraySerializer();
        return new KafkaProducer<>(properties, bytes, bytes);
    }

    private static double[] latencies(
            KafkaProducer<byte[], byte[]> producer, ProducerRecord<byte[], byte[]> sent, int count) throws Exception {
        double[] taken = new double[count];
        for (int i = 0; i < count; i++) {
            long begun = System.nanoTime();
            producer.send(sent).get();
            taken[i] = (System.nanoTime() - begun) / 1e6;
        }
        return taken;
    }

    private static long peakKilobytes() throws Exception {
        List<String> status = Files.readAllLines(Path.of("/proc/self/status"));
        for (String line : status) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("\\D", ""));
            }
        }
        return 0;
    }
}
