import java.util.List;
import java.util.StringJoiner;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Writes every key of Java's clients as a line of JSON. */
public class ConfigOracle {
    public static void main(String[] args) {
        dump("producer", ProducerConfig.configDef());
        dump("consumer", ConsumerConfig.configDef());
        dump("admin", AdminClientConfig.configDef());
    }

    static void dump(String table, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            StringJoiner line = new StringJoiner(", ", "{", "}");
            line.add("\"table\": " + quoted(table));
            line.add("\"name\": " + quoted(key.name));
            line.add("\"type\": " + quoted(key.type));
            line.add("\"importance\": " + quoted(key.importance));
            line.add("\"valid\": " + quoted(key.validator == null ? "" : key.validator));
            line.add("\"required\": " + !key.hasDefault());
            line.add("\"default\": " + (key.hasDefault() ? value(key.defaultValue) : "null"));
            System.out.println(line);
        }
    }

    static String value(Object value) {
        if (value instanceof Number || value instanceof Boolean) {
            return value.toString();
        }
        if (value instanceof Class) {
            return quoted(((Class<?>) value).getName());
        }
        if (value instanceof List) {
            StringJoiner items = new StringJoiner(", ", "[", "]");
            for (Object item : (List<?>) value) {
                items.add(value(item));
            }
            return items.toString();
        }
        return value == null ? "null" : quoted(value);
    }

    static String quoted(Object value) {
        return '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
