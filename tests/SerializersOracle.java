import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;
import org.apache.kafka.common.serialization.BooleanSerializer;
import org.apache.kafka.common.serialization.DoubleSerializer;
import org.apache.kafka.common.serialization.FloatSerializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.ListSerializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.ShortSerializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.serialization.UUIDSerializer;

/** Serializes some values with Java's serializers and writes lines of type, value and bytes in hex. */
public class SerializersOracle {
    static <T> void write(String type, Serializer<T> serializer, T... values) {
        for (T value : values) {
            System.out.println(type + "\t" + value + "\t" + HexFormat.of().formatHex(serializer.serialize("topic", value)));
        }
    }

    public static void main(String[] args) {
        write("Short", new ShortSerializer(), (short) 0, (short) -1, Short.MIN_VALUE, Short.MAX_VALUE);
        write("Integer", new IntegerSerializer(), 0, -1, 305419896, Integer.MIN_VALUE, Integer.MAX_VALUE);
        write("Long", new LongSerializer(), 0L, -1L, 81985529216486895L, Long.MIN_VALUE, Long.MAX_VALUE);
        write("Float", new FloatSerializer(), 0f, -0f, 1.5f, -2.5e9f, Float.POSITIVE_INFINITY, Float.NaN);
        write("Double", new DoubleSerializer(), 0d, -0d, 0.1, -3.25e100, Double.NEGATIVE_INFINITY, Double.NaN);
        write("Boolean", new BooleanSerializer(), true, false);
        write("String", new StringSerializer(), "", "plain", "\u00e4\u20ac\ud83d\ude00");
        write("IntegerList", new ListSerializer<>(new IntegerSerializer()), List.of(), List.of(1, -2), Arrays.asList(null, 3, null));
        write("StringList", new ListSerializer<>(new StringSerializer()), List.of(), List.of("a", ""), Arrays.asList(null, "b", null));
        write("UUIDList", new ListSerializer<>(new UUIDSerializer()), Arrays.asList(new UUID(1, 2), null));
        write("UUID", new UUIDSerializer(), new UUID(0, 0), new UUID(0x0123456789abcdefL, 0xfedcba9876543210L));
    }
}
