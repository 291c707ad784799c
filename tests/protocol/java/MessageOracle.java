import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.protocol.types.ArrayOf;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.CompactArrayOf;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;

/**
 * Encodes values with Kafka's own message classes, for comparison with ours. Arguments: a mode, then message names.
 * It also runs with Kafka 3.9, whose record classes are in another package.
 *
 * random SEED COUNT NAMES: each message in each version with random content. A line is
 *   name, version, bytes written by the message's schema, bytes written by the message, its values as JSON.
 * headers: each API and version. A line is
 *   key, name, version, is oldest, is latest, header version of the request and of the response.
 * fields NAMES: each class (nested ones too) in each version, with one field set and all others at defaults. A line is
 *   message, class, version, field, kind of value, bytes or the name of the exception.
 */
public class MessageOracle {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.", "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated."};
    private static final String[] RECORDS = {"org.apache.kafka.common.record.internal.", "org.apache.kafka.common.record."};
    private static final String[] TEXTS = {"", "a", "topic-1", "größe", "日本語", "😀 and 𝄞", "tab\tnul\0quote\"", "x".repeat(200)};
    private static final Uuid ID = new Uuid(0x0102030405060708L, 0x1112131415161718L);

    private final PrintStream out = new PrintStream(System.out, false, java.nio.charset.StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        MessageOracle oracle = new MessageOracle();
        if (args[0].equals("random")) {
            for (String name : Arrays.asList(args).subList(3, args.length))
                oracle.random(name, Long.parseLong(args[1]), Integer.parseInt(args[2]));
        } else if (args[0].equals("headers")) {
            oracle.headers();
        } else {
            for (String name : Arrays.asList(args).subList(1, args.length))
                oracle.fields(name);
        }
        oracle.out.flush();
    }

    private static Class<?> classIn(String[] packages, String name) throws ClassNotFoundException {
        for (String prefix : packages) {
            try {
                return Class.forName(prefix + name);
            } catch (ClassNotFoundException e) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static Object records(byte[] bytes) {
        try {
            Class<?> type = classIn(RECORDS, "MemoryRecords");
            return type.getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(bytes));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    @SuppressWarnings("unchecked")
    private static Map<Integer, Field> fieldsOf(TaggedFields tagged) {
        try {
            java.lang.reflect.Field fields = TaggedFields.class.getDeclaredField("fields");
            fields.setAccessible(true);
            return (Map<Integer, Field>) fields.get(tagged);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static ByteBuffer bytesOf(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.flip();
    }

    private void line(Object... cells) {
        out.print(String.join("\t", Arrays.stream(cells).map(String::valueOf).toList()) + "\n");
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    // --- random content

    private void random(String name, long seed, int count) throws Exception {
        String dataName = dataName(name);
        Class<?> data = classIn(PACKAGES, dataName);
        Method json = Arrays.stream(Class.forName(data.getName() + "JsonConverter").getMethods())
            .filter(m -> m.getName().equals("write") && m.getParameterCount() == 3).findFirst().orElseThrow();
        Constructor<?> read = data.getConstructor(Readable.class, short.class);
        Schema[] schemas = (Schema[]) data.getField("SCHEMAS").get(null);
        for (short version = 0; version < schemas.length; version++) {
            if (schemas[version] == null) continue;
            for (int i = 0; i < count; i++) {
                Random random = new Random(seed ^ (name + version + "/" + i).hashCode());
                Struct struct = (Struct) value(schemas[version], random, 0);
                ByteBuffer buffer = ByteBuffer.allocate(struct.sizeOf());
                struct.writeTo(buffer);
                buffer.flip();
                Message message = (Message) read.newInstance(new ByteBufferAccessor(buffer.duplicate()), version);
                line(name, version, hex(buffer), hex(bytesOf(message, version)), json.invoke(null, message, version, false));
            }
        }
    }

    private static String dataName(String name) {
        return name.endsWith("Request") || name.endsWith("Response") ? name + "Data" : name;
    }

    private Object value(org.apache.kafka.common.protocol.types.Type type, Random random, int depth) {
        if (type.isNullable() && random.nextInt(4) == 0) return null;
        if (type instanceof Schema schema) {
            Struct struct = new Struct(schema);
            for (BoundField field : schema.fields())
                struct.set(field, value(field.def.type, random, depth + 1));
            return struct;
        }
        if (type instanceof TaggedFields tagged) {
            Map<Integer, Object> values = new TreeMap<>();
            for (Map.Entry<Integer, Field> entry : fieldsOf(tagged).entrySet())
                if (random.nextBoolean())
                    values.put(entry.getKey(), value(entry.getValue().type, random, depth + 1));
            if (random.nextInt(4) == 0)
                for (int tag : new int[] {100, 300})
                    values.put(tag, new RawTaggedField(tag, text(random).getBytes(java.nio.charset.StandardCharsets.UTF_8)));
            return values;
        }
        if (type instanceof ArrayOf || type instanceof CompactArrayOf) {
            Object[] values = new Object[random.nextInt(4) == 0 && depth < 3 ? 3 : random.nextInt(3)];
            for (int i = 0; i < values.length; i++)
                values[i] = value(type.arrayElementType().orElseThrow(), random, depth + 1);
            return values;
        }
        String name = type.toString();
        return switch (name.replace("COMPACT_", "").replace("NULLABLE_", "")) {
            case "BOOLEAN" -> random.nextBoolean();
            case "INT8" -> (byte) number(random, Byte.MIN_VALUE, Byte.MAX_VALUE);
            case "INT16" -> (short) number(random, Short.MIN_VALUE, Short.MAX_VALUE);
            case "UINT16" -> (int) number(random, 0, 65535);
            case "INT32" -> (int) number(random, Integer.MIN_VALUE, Integer.MAX_VALUE);
            case "UINT32" -> number(random, 0, 0xFFFFFFFFL);
            case "INT64" -> number(random, Long.MIN_VALUE, Long.MAX_VALUE);
            case "FLOAT64" -> random.nextInt(3) == 0 ? 0.0 : random.nextGaussian() * 1e6;
            case "UUID" -> random.nextInt(3) == 0 ? Uuid.ZERO_UUID : new Uuid(random.nextLong(), random.nextLong());
            case "STRING" -> text(random);
            case "BYTES" -> ByteBuffer.wrap(bytes(random));
            case "RECORDS" -> records(bytes(random));
            default -> throw new IllegalStateException("no value for a " + name);
        };
    }

    private static long number(Random random, long low, long high) {
        return switch (random.nextInt(6)) {
            case 0 -> low;
            case 1 -> high;
            case 2 -> 0;
            case 3 -> low < 0 ? -1 : 1;
            default -> random.nextInt(100);
        };
    }

    private static String text(Random random) {
        return TEXTS[random.nextInt(TEXTS.length)];
    }

    private static byte[] bytes(Random random) {
        byte[] bytes = new byte[random.nextInt(5) == 0 ? 3000 : random.nextInt(4)];
        random.nextBytes(bytes);
        return bytes;
    }

    // --- headers

    private void headers() {
        for (ApiKeys api : ApiKeys.values())
            for (short version : api.allVersions())
                line(api.id, api, version, version == api.oldestVersion(), version == api.latestVersion(false),
                     api.requestHeaderVersion(version), api.responseHeaderVersion(version));
    }

    // --- one field at a time

    private void fields(String name) throws Exception {
        Class<?> data = classIn(PACKAGES, dataName(name));
        List<Class<?>> classes = new ArrayList<>(List.of(data));
        for (Class<?> nested : data.getDeclaredClasses())
            if (Message.class.isAssignableFrom(nested)) classes.add(nested);
        for (Class<?> type : classes) {
            Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
            String className = type == data ? name : type.getSimpleName();
            for (short version = 0; version < schemas.length; version++) {
                if (schemas[version] == null) continue;
                line(name, className, version, "-", "default", written(type, null, null, version));
                for (Method setter : type.getMethods()) {
                    if (!setter.getName().startsWith("set") || setter.getParameterCount() != 1) continue;
                    String field = setter.getName().substring(3);
                    if (field.equals("Prev") || field.equals("Next")) continue;  // links of Java's collections
                    Class<?> parameter = setter.getParameterTypes()[0];
                    Object set = sample(setter.getGenericParameterTypes()[0]);
                    line(name, className, version, field, "set", written(type, setter, set, version));
                    if (parameter == boolean.class)
                        line(name, className, version, field, "unset", written(type, setter, false, version));
                    if (!parameter.isPrimitive() && parameter != Uuid.class)
                        line(name, className, version, field, "null", written(type, setter, null, version));
                    if (Collection.class.isAssignableFrom(parameter))
                        line(name, className, version, field, "empty",
                             written(type, setter, emptyOf(setter.getGenericParameterTypes()[0]), version));
                }
            }
        }
    }

    private static String written(Class<?> type, Method setter, Object value, short version) throws Exception {
        Message message = (Message) type.getConstructor().newInstance();
        try {
            if (setter != null) setter.invoke(message, value);
            return "=" + hex(bytesOf(message, version));
        } catch (UnsupportedVersionException e) {
            return "UnsupportedVersion";
        } catch (NullPointerException e) {
            return "Null";
        } catch (InvocationTargetException e) {
            return "Setter";
        }
    }

    private static Collection<Object> emptyOf(Type type) throws Exception {
        Class<?> raw = type instanceof ParameterizedType p ? (Class<?>) p.getRawType() : (Class<?>) type;
        if (raw == List.class) return new ArrayList<>();
        @SuppressWarnings("unchecked")
        Collection<Object> made = (Collection<Object>) raw.getConstructor().newInstance();
        return made;
    }

    private static Object sample(Type type) throws Exception {
        if (type == boolean.class) return true;
        if (type == byte.class) return (byte) 77;
        if (type == short.class || type == Short.class) return (short) 77;
        if (type == int.class || type == Integer.class) return 77;
        if (type == long.class || type == Long.class) return 77L;
        if (type == double.class) return 77.0;
        if (type == Byte.class) return (byte) 77;
        if (type == String.class) return "x77";
        if (type == byte[].class) return new byte[] {7, 7};
        if (type == ByteBuffer.class) return ByteBuffer.wrap(new byte[] {7, 7});
        if (type.getTypeName().endsWith(".BaseRecords")) return records(new byte[] {7, 7});
        if (type == Uuid.class) return ID;
        if (type instanceof ParameterizedType p) {
            Collection<Object> list = emptyOf(type);
            list.add(sample(p.getActualTypeArguments()[0]));
            return list;
        }
        Class<?> raw = (Class<?>) type;
        if (Collection.class.isAssignableFrom(raw)) {
            Collection<Object> collection = emptyOf(type);
            Type element = ((ParameterizedType) raw.getGenericSuperclass()).getActualTypeArguments()[0];
            collection.add(sample(element));
            return collection;
        }
        return raw.getConstructor().newInstance();
    }
}
