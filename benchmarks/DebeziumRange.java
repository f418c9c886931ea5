// Debezium's embedded engine over one range of a binlog, again for each line of the standard input.
//
// A line of the standard output for each: seconds from the engine's start to the last change, changes of the first
// batch, and seconds from that batch to the last. Or "failed" and why.

import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

public final class DebeziumRange {
    private static final String NAME = "benchmark";
    private static String offset;

    /** Offsets in memory; the first is where the range begins. */
    public static final class Offsets extends MemoryOffsetBackingStore {
        @Override
        public void configure(WorkerConfig config) {
            super.configure(config);
            data.put(bytes("[\"" + NAME + "\",{\"server\":\"" + NAME + "\"}]"), bytes(offset));
        }

        @Override
        public Set<Map<String, Object>> connectorPartitions(String connector) {
            return null;
        }

        private static ByteBuffer bytes(String text) {
            return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    private final String topic;
    private final long expected;
    private final CountDownLatch ended = new CountDownLatch(1);
    private long found;
    private long inFirstBatch;
    private long firstBatchAt;
    private volatile long lastAt;
    private volatile String failure;

    private DebeziumRange(String topic, long expected) {
        this.topic = topic;
        this.expected = expected;
    }

    /** Arguments: a file of the engine's properties, a table, where the range begins, how many changes it has. */
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (var file = java.nio.file.Files.newBufferedReader(java.nio.file.Path.of(arguments[0]))) {
            properties.load(file);
        }
        properties.setProperty("name", NAME);
        properties.setProperty("topic.prefix", NAME);
        properties.setProperty("table.include.list", arguments[1]);
        properties.setProperty("offset.storage", Offsets.class.getName());
        offset = arguments[2];
        var asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (asked.readLine() != null) {
            var range = new DebeziumRange(NAME + "." + arguments[1], Long.parseLong(arguments[3]));
            System.out.println(range.read(properties));
        }
        System.exit(0);
    }

    private String read(Properties properties) throws Exception {
        long began = System.nanoTime();
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                        .using(properties)
                        .using((DebeziumEngine.CompletionCallback) this::completed)
                        .notifying((DebeziumEngine.ChangeConsumer<RecordChangeEvent<SourceRecord>>) this::count)
                        .build();
        Thread thread = new Thread(engine, "engine");
        thread.setDaemon(true);
        thread.start();
        boolean inTime = ended.await(900, TimeUnit.SECONDS);
        if (lastAt == 0) {
            return "failed: " + (inTime ? failure : found + " changes of " + expected + " after 900 s");
        }
        engine.close();
        thread.join();
        return String.format(
                Locale.ROOT, "%.6f %d %.6f", (lastAt - began) / 1e9, inFirstBatch, (lastAt - firstBatchAt) / 1e9);
    }

    private void count(
            List<RecordChangeEvent<SourceRecord>> batch,
            DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer)
            throws InterruptedException {
        for (RecordChangeEvent<SourceRecord> each : batch) {
            if (topic.equals(each.record().topic()) && each.record().value() != null) {
                found++;
            }
        }
        committer.markProcessed(batch.get(batch.size() - 1));
        committer.markBatchFinished();
        if (inFirstBatch == 0 && found > 0) {
            inFirstBatch = found;
            firstBatchAt = System.nanoTime();
        }
        if (lastAt == 0 && found >= expected) {
            lastAt = System.nanoTime();
            ended.countDown();
        }
    }

    private void completed(boolean success, String message, Throwable error) {
        Throwable cause = error;
        while (cause != null && cause.getCause() != null) {
            cause = cause.getCause();
        }
        failure = (message + ": " + cause).replaceAll("\\s+", " ");
        ended.countDown();
    }
}
