import java.util.Locale;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;

/** FTRL-Proximal with 2^22 weights (McMahan et al. 2013, algorithm 1), one example after the other, predicted first. */
public final class Ftrl extends ProcessFunction<Event, String> {
    static final int BITS = 22;
    static final double ALPHA = 0.1, BETA = 1.0, L1 = 1.0, L2 = 1.0;
    static long wanted;

    private transient double[] z, n, w;
    private long examples, positives;
    private double loss;

    /** The number of the weight of a field's value. */
    static int place(String name, String value) {
        long mixed = (name.hashCode() * 0x9E3779B97F4A7C15L + value.hashCode()) * 0xBF58476D1CE4E5B9L;
        return (int) ((mixed ^ (mixed >>> 29)) * 0x94D049BB133111EBL >>> (64 - BITS));
    }

    @Override
    public void processElement(Event event, Context context, Collector<String> out) {
        if (z == null) {
            z = new double[1 << BITS];
            n = new double[1 << BITS];
            w = new double[64];
        }
        double p = predict(event.features), y = event.clicked ? 1.0 : 0.0;
        loss -= Math.log(Math.max(event.clicked ? p : 1.0 - p, 1e-15));
        learn(event.features, p - y);
        positives += event.clicked ? 1 : 0;
        if (++examples == wanted) {
            out.collect(figures());
        }
    }

    private double predict(int[] features) {
        double margin = 0.0;
        for (int i = 0; i < features.length; i++) {
            double at = z[features[i]];
            w[i] = Math.abs(at) <= L1 ? 0.0
                    : (Math.signum(at) * L1 - at) / ((BETA + Math.sqrt(n[features[i]])) / ALPHA + L2);
            margin += w[i];
        }
        return 1.0 / (1.0 + Math.exp(-margin));
    }

    private void learn(int[] features, double g) {
        for (int i = 0; i < features.length; i++) {
            int at = features[i];
            double sigma = (Math.sqrt(n[at] + g * g) - Math.sqrt(n[at])) / ALPHA;
            z[at] += g - sigma * w[i];
            n[at] += g * g;
        }
    }

    private String figures() {
        return String.format(Locale.ROOT,
                "{\"seconds\": %f, \"cpu_seconds\": %f, \"examples\": %d, \"positives\": %d, \"log_loss\": %f}",
                (System.nanoTime() - Loop.begun) / 1e9, (Loop.cpu() - Loop.cpuBegun) / 1e9, examples, positives,
                loss / examples);
    }
}
