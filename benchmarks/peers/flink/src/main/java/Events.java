import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.Arrays;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** Makes events of JSON objects with Jackson's parser of tokens: the id, and every other field hashed with its value. */
public final class Events implements KafkaRecordDeserializationSchema<Event> {
    private static final int MOST = 64;
    private final boolean whole;
    private transient JsonFactory json;
    private transient int[] found;

    Events(boolean whole) {
        this.whole = whole;
    }

    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Event> out) throws IOException {
        if (json == null) {
            json = new JsonFactory();
            found = new int[MOST];
        }
        if (whole) {
            Loop.begin();
        }
        Event event = new Event();
        event.timeMs = record.timestamp();
        int count = 0;
        try (JsonParser parser = json.createParser(record.value())) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                String name = parser.currentName();
                parser.nextToken();
                if (name.equals("id")) {
                    event.id = parser.getText();
                } else {
                    found[count++] = Ftrl.place(name, parser.getText());
                }
            }
        }
        found[count++] = Ftrl.place("", "");
        event.features = whole ? Arrays.copyOf(found, count) : new int[0];
        out.collect(event);
    }

    @Override
    public TypeInformation<Event> getProducedType() {
        return TypeInformation.of(Event.class);
    }
}
