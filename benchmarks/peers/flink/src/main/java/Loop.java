import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.util.Collector;

/**
 * The whole loop: JSON from Kafka, a join with keyed state and a timer, FTRL-Proximal in arrays. Arguments: bootstrap
 * servers, window in ms, then impressions, clicks and count, once or several times. Each time is a job in the same
 * process, so that only the first pays for compiling, and prints a line of figures, of the time from the first
 * impression to the last example learned. State is on the heap, checkpoints are made every 10 s; the weights are in none.
 */
public final class Loop {
    static volatile long begun, cpuBegun;

    public static void main(String[] args) throws Exception {
        for (int i = 2; i < args.length; i += 3) {
            begun = 0;
            Ftrl.wanted = Long.parseLong(args[i + 2]);
            run(args[0], Long.parseLong(args[1]), args[i], args[i + 1]);
        }
    }

    private static void run(String bootstrap, long windowMs, String impressions, String clicks) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", "hashmap");
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir", Files.createTempDirectory("checkpoints").toUri().toString());
        settings.setString("execution.checkpointing.interval", "10s");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        env.getConfig().enableObjectReuse();
        DataStream<Event> shown = read(env, bootstrap, impressions, true);
        DataStream<Event> clicked = read(env, bootstrap, clicks, false);
        shown.connect(clicked)
                .keyBy(event -> event.id, event -> event.id)
                .process(new Join(windowMs))
                .process(new Ftrl())
                .print();
        env.execute();
    }

    private static DataStream<Event> read(StreamExecutionEnvironment env, String bootstrap, String topic, boolean whole) {
        KafkaSource<Event> source = KafkaSource.<Event>builder()
                .setBootstrapServers(bootstrap)
                .setTopics(topic)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setDeserializer(new Events(whole))
                .build();
        WatermarkStrategy<Event> byTime = WatermarkStrategy.forBoundedOutOfOrderness(Duration.ZERO);
        return env.fromSource(source, byTime, topic).returns(Event.class).filter(event -> !event.id.startsWith("end-"));
    }

    static void begin() {
        if (begun == 0) {
            cpuBegun = cpu();
            begun = System.nanoTime();
        }
    }

    static long cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** An impression waits for its click until its window has closed. */
    static final class Join extends KeyedCoProcessFunction<String, Event, Event, Event> {
        private final long windowMs;
        private transient ValueState<Event> impression;
        private transient ValueState<Long> clickMs;

        Join(long windowMs) {
            this.windowMs = windowMs;
        }

        @Override
        public void open(OpenContext context) {
            impression = getRuntimeContext().getState(new ValueStateDescriptor<>("impression", Event.class));
            clickMs = getRuntimeContext().getState(new ValueStateDescriptor<>("click", Long.class));
        }

        @Override
        public void processElement1(Event event, Context context, Collector<Event> out) throws Exception {
            impression.update(event);
            context.timerService().registerEventTimeTimer(event.timeMs + windowMs);
        }

        @Override
        public void processElement2(Event event, Context context, Collector<Event> out) throws Exception {
            clickMs.update(event.timeMs);
            context.timerService().registerEventTimeTimer(event.timeMs + 1);
        }

        @Override
        public void onTimer(long timeMs, OnTimerContext context, Collector<Event> out) throws Exception {
            Event event = impression.value();
            if (event == null) {
                clickMs.clear();
            } else if (timeMs == event.timeMs + windowMs) {
                Long found = clickMs.value();
                event.clicked = found != null && found <= timeMs;
                out.collect(event);
                impression.clear();
                clickMs.clear();
            }
        }
    }
}
