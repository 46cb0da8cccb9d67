"""From the bytes of an event to its id, its time and its row of features.

    {"id":"i-17","site":"news","price":0.25}           the bytes of one impression

    status   time_ms          id_hash         number   row: keys               values
    0 (OK)   of the record    XXH64("i-17")   1.0           XXH64("site=news")    1.0
                                                            XXH64("price")        0.25
                                                            XXH64("") (bias)      1.0

`number` is the weight of an impression or the value of a click. A batch of n events becomes one array a column. All
rows lie back to back in `keys` and `values`: row i is keys[row_start[i]:row_start[i+1]]. A record that cannot be used
keeps its place, with an empty row and a `Reason` as its status; it is never dropped and never raises.

Two decoders give these columns. `reference` defines them, in plain Python over orjson, one event after the other.
`fast` does it in kernels, for events of the ordinary kind, and refuses all others. `decoders.BatchDecoder` runs a
batch through `fast`, and every refused event through `reference`:

    batch -> fast kernel --------------------------------------> columns
               |  stops at an event that it does not take           ^
               v                                                    |
             orjson -> reference -> row of this one event ----------+
               |
               +-> the fields of the event become known to the kernel, which goes on with the next event

Both must agree in every bit; property tests and fuzzing compare them.

Records of Avro and Protobuf become JSON first (`schema_forms`), those of Avro by a kernel too.

In order of reading: `feature_spec` (which fields become features), `feature_keys` (which texts are hashed), `plan`
(both specifications as the treatment of one field), `reasons`, `reference`, `decoders`, and the folder `fast`.
`features` is for scoring, where events have no id and no time. The joiner calls `ImpressionDecoder` and
`ClickDecoder`, scorers and the offline evaluation call `FeatureEncoder`: one decoder, so one key for one text.
"""
