import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints a line for each setting of a topic: name, type, default, valid values, the broker's names for it. */
public class LogConfigOracle {
    public static void main(String[] args) {
        for (ConfigDef.ConfigKey key : LogConfig.configKeys().values()) {
            var synonyms = ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.get(key.name);
            var names = new StringBuilder();
            if (synonyms != null)
                synonyms.forEach(synonym -> names.append(names.isEmpty() ? "" : ",").append(synonym.name()));
            var value = ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(key.name + "\t" + key.type + "\t" + (value == null ? "null" : value) + "\t"
                + (key.validator == null ? "" : key.validator) + "\t" + names);
        }
    }
}
