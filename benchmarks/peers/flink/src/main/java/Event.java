/** An impression with its features, or a click, which has none. */
public class Event {
    public String id;
    public long timeMs;
    /** Numbers of weights, the last that of the bias. */
    public int[] features;
    public boolean clicked;
}
