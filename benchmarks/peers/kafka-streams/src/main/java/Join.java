import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;

/**
 * A left join of impressions and clicks by their keys. Values are bytes that nobody parses; the output is the
 * impression's, behind a byte that is 1 if it was clicked. Arguments: bootstrap servers, window in ms, then
 * impressions, clicks, output and count, once or several times. Each time runs in the same process, so that only the
 * first pays for compiling, and prints a line of figures, of the time from the first impression to the last output.
 */
public final class Join {
    private static final byte[] END = "end-".getBytes();

    private final CountDownLatch done = new CountDownLatch(1);
    private final long wanted;
    private long begun, cpuBegun, ended, cpuEnded, outputs, positives;

    private Join(long wanted) {
        this.wanted = wanted;
    }

    public static void main(String[] args) throws Exception {
        for (int i = 2; i < args.length; i += 4) {
            new Join(Long.parseLong(args[i + 3])).run(args, i);
        }
    }

    private void run(String[] args, int at) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<byte[], byte[]> impressions = builder.stream(args[at]);
        KStream<byte[], byte[]> clicks = builder.stream(args[at + 1]);
        impressions.peek((id, value) -> begin())
                .leftJoin(clicks, Join::joined,
                        JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(Long.parseLong(args[1])))
                                .before(Duration.ZERO))
                .filter((id, value) -> !isEnd(id))
                .peek((id, value) -> count(value[0]))
                .to(args[at + 2]);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings(args, at))) {
            streams.start();
            done.await();
        }
        System.out.printf(Locale.ROOT, "{\"seconds\": %f, \"cpu_seconds\": %f, \"examples\": %d, \"positives\": %d}%n",
                (ended - begun) / 1e9, (cpuEnded - cpuBegun) / 1e9, outputs, positives);
    }

    private static Properties settings(String[] args, int at) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[at + 2]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("state").toString());
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.producerPrefix("compression.type"), "lz4");
        settings.put(StreamsConfig.producerPrefix("batch.size"), 1_000_000);
        return settings;
    }

    /** Begins the time at the first impression. */
    private void begin() {
        if (begun == 0) {
            begun = System.nanoTime();
            cpuBegun = cpu();
        }
    }

    private static byte[] joined(byte[] impression, byte[] click) {
        byte[] labelled = new byte[impression.length + 1];
        labelled[0] = (byte) (click == null ? 0 : 1);
        System.arraycopy(impression, 0, labelled, 1, impression.length);
        return labelled;
    }

    /** Ends the time at the last output. */
    private void count(byte label) {
        positives += label;
        if (++outputs == wanted) {
            ended = System.nanoTime();
            cpuEnded = cpu();
            done.countDown();
        }
    }

    private static boolean isEnd(byte[] id) {
        return id.length >= END.length && Arrays.equals(id, 0, END.length, END, 0, END.length);
    }

    private static long cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
