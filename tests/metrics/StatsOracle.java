import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.CumulativeCount;
import org.apache.kafka.common.metrics.stats.CumulativeSum;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Min;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.WindowedCount;
import org.apache.kafka.common.metrics.stats.WindowedSum;

/** Reads "new samples window", "record time value" and "measure time" lines; writes all stats for each measure. */
public class StatsOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        List<MeasurableStat> stats = new ArrayList<>();
        MetricConfig config = new MetricConfig();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("new")) {
                config = new MetricConfig().samples(Integer.parseInt(words[1]))
                    .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS);
                stats = List.of(new Avg(), new Max(), new Min(), new WindowedSum(), new WindowedCount(), new Rate(),
                    new Rate(new WindowedCount()), new CumulativeSum(), new CumulativeCount());
            } else if (words[0].equals("record")) {
                for (MeasurableStat stat : stats) {
                    stat.record(config, Double.parseDouble(words[2]), Long.parseLong(words[1]));
                }
            } else {
                StringJoiner values = new StringJoiner(" ");
                for (MeasurableStat stat : stats) {
                    values.add(String.valueOf(stat.measure(config, Long.parseLong(words[1]))).replace("Infinity", "inf"));
                }
                System.out.println(values);
            }
        }
    }
}
