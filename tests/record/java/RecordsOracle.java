import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Locale;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.AbstractRecords;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * Builds and reads batches with Java's classes; tests/record/oracle.py describes the input and output lines.
 * "build" reads descriptions and writes bytes, "read" reads bytes and writes descriptions, "compact" removes records.
 */
public class RecordsOracle {
    private static final HexFormat HEX = HexFormat.of();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            switch (args[0]) {
                case "build" -> build(line.split(" "), in);
                case "read" -> read(MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(line))));
                case "compact" -> compact(line.split(" "));
                default -> throw new IllegalArgumentException(args[0]);
            }
        }
        OUT.flush();
    }

    private static Compression compression(String name, String level) {
        if (level.equals("-")) {
            return Compression.of(name).build();
        }
        int number = Integer.parseInt(level);
        return switch (name) {
            case "gzip" -> Compression.gzip().level(number).build();
            case "lz4" -> Compression.lz4().level(number).build();
            case "zstd" -> Compression.zstd().level(number).build();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : HEX.parseHex(text.substring(1));
    }

    private static String text(ByteBuffer buffer) {
        if (buffer == null) {
            return "-";
        }
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return "=" + HEX.formatHex(data);
    }

    private static TimestampType timestampType(String name) {
        return TimestampType.valueOf(name);
    }

    private static void build(String[] f, BufferedReader in) throws Exception {
        byte magic = Byte.parseByte(f[0]);
        Compression compression = compression(f[1], f[2]);
        boolean isControl = f[10].equals("1");
        var builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(512), magic, compression, timestampType(f[3]),
            Long.parseLong(f[4]), Long.parseLong(f[5]), Long.parseLong(f[6]), Short.parseShort(f[7]),
            Integer.parseInt(f[8]), f[9].equals("1"), isControl, Integer.parseInt(f[11]), 1 << 20,
            Long.parseLong(f[12]));
        int count = Integer.parseInt(f[14]);
        var bounds = new StringBuilder();
        for (int i = 0; i < count; i++) {
            String[] r = in.readLine().split(" ");
            long offset = Long.parseLong(r[0]);
            byte[] key = bytes(r[2]);
            byte[] value = bytes(r[3]);
            Header[] headers = new Header[(r.length - 4) / 2];
            for (int h = 0; h < headers.length; h++) {
                headers[h] = new RecordHeader(new String(bytes(r[4 + 2 * h]), StandardCharsets.UTF_8), bytes(r[5 + 2 * h]));
            }
            long timestamp = Long.parseLong(r[1]);
            if (isControl) {
                builder.appendControlRecordWithOffset(offset, new SimpleRecord(timestamp, key, value, headers));
            } else {
                builder.appendWithOffset(offset, timestamp, key, value, headers);
            }
            bounds.append(' ').append(
                AbstractRecords.estimateSizeInBytesUpperBound(magic, compression.type(), key, value, headers));
        }
        if (!f[13].equals("-")) {
            builder.overrideLastOffset(Long.parseLong(f[13]));
        }
        int uncompressed = builder.uncompressedBytesWritten();
        ByteBuffer buffer = builder.build().buffer();
        MemoryRecordsBuilder.RecordsInfo info = builder.info();
        OUT.println(text(buffer) + " " + uncompressed + " " + info.maxTimestamp + " "
            + info.shallowOffsetOfMaxTimestamp + bounds);
    }

    private static void read(MemoryRecords records) {
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            var horizon = batch.deleteHorizonMs();
            OUT.println("batch " + batch.magic() + " " + batch.compressionType().name + " " + batch.timestampType() + " "
                + batch.baseOffset() + " " + batch.lastOffset() + " " + batch.maxTimestamp() + " " + batch.producerId()
                + " " + batch.producerEpoch() + " " + batch.baseSequence() + " " + batch.lastSequence() + " "
                + (batch.isTransactional() ? 1 : 0) + " " + (batch.isControlBatch() ? 1 : 0) + " "
                + batch.partitionLeaderEpoch() + " " + (horizon.isPresent() ? horizon.getAsLong() : -1) + " "
                + batch.countOrNull() + " " + batch.sizeInBytes());
            for (Record record : batch) {
                record.ensureValid();
                var headers = new StringBuilder();
                for (Header header : record.headers()) {
                    headers.append(" =").append(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)));
                    headers.append(' ').append(header.value() == null ? "-" : "=" + HEX.formatHex(header.value()));
                }
                OUT.println("record " + record.offset() + " " + record.timestamp() + " " + text(record.key()) + " "
                    + text(record.value()) + headers);
                if (batch.isControlBatch()) {
                    OUT.println("control " + ControlRecordType.parse(record.key()).name().toUpperCase(Locale.ROOT));
                }
            }
        }
        OUT.println("end");
    }

    /** Keeps the records at odd offsets, or only the empty batch; sets a delete horizon for tombstones. */
    private static void compact(String[] f) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(f[0])));
        boolean keep = f[1].equals("odd");
        var filter = new MemoryRecords.RecordFilter(1_000_000L, 500L) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return keep && record.offset() % 2 == 1;
            }
        };
        ByteBuffer out = ByteBuffer.allocate(1 << 20);
        records.filterTo(filter, out, org.apache.kafka.common.utils.BufferSupplier.NO_CACHING);
        out.flip();
        OUT.println(text(out));
    }
}
