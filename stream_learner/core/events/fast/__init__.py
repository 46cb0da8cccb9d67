"""The fast decoder: ordinary JSON events to columns, in one pass over their bytes.

It reads an event and hashes its features in about a sixth of the time that orjson takes only to parse it. It can,
because it need not take every event: at anything unusual it gives up, and `reference` decodes that event. It must
never accept an event that orjson refuses, nor read one differently; in doubt it gives up.

1. The next field is predicted. Producers write the fields of their events in the same order. Every known field has an
   entry of 296 bytes in the memory of fields, found by its parent and its key, and keeps the field that followed it
   last time. The first 32 bytes of that field's `"key":` are compared as one masked word:

       text of the event      ,  " s i t e " :  " n e w s " , " p r i c e " : 0 . 2 5 }
                                 |<- 7 bytes ->|
       FIELD_START               " s i t e " :  . . . . . . . . .
       FIELD_MASK                F F F F F F F  0 0 0 0 0 0 0 0 0      (text ^ start) & mask == 0

   A hit costs a few instructions. After a miss, `keys.find_field` finds the end of the key, looks (parent, key) up in
   a hash index, compares the bytes, and predicts this field from now on.

2. One scan finds the end of a string. `special_bytes` looks at 16 bytes at once for the four things that end plain
   text: a quote, a backslash, a control character, a byte that is not ASCII. Mostly it finds the closing quote.
   Otherwise a second scan checks UTF-8, or writes the text out without its escapes.

3. The key of a category is XXH64 of `name=text`, and the text stays where it is. The entry of a field holds XXH64's
   rounds of the whole words of its prefix `name=`; the prefix's last 0 to 7 bytes are laid over the bytes before the
   text, so that the rest of the hash reads whole words of the event. (XXH64 begins with the length, so the state after
   the prefix cannot be kept.) A `name=text` of 32 bytes or more is copied to one place first. Keys of numbers, booleans
   and buckets do not depend on the event; they are hashed once, when the field becomes known.

   Most fields are ordinary categories, which `categories` takes in about 120 instructions, a run of them in one loop
   that calls nothing. What limits it is how many instructions wait for others. So the length of a text is predicted,
   too: where texts of a field keep their length, as hashes and codes do, the place of the next field is known before
   this text has been looked at.

4. Repeats are noticed without a set. Each object gets a number that no object had before, and each field stores the
   number of the object that had it last: if that is the present object, a key is repeated. The features of a row mark
   13 bits of their keys in a table of bytes; only if two agree in them does a hash table sum equal keys.

5. Reads are bounded once. White space at the end of a record is cut off, and its last byte must be `}`. No number,
   literal or white space contains it, so their loops stop there without a check; strings check `end`. Kernels may read
   PADDING bytes after a record, which never change a result; if fewer follow, `decoders` copies the records first.

6. FAIL instead of an address means that the kernel gives up on this event. CTX_STOPPED_BY says why: the event is
   unusual, it has an unknown field, or the columns are full. `decoders.BatchDecoder` then decodes it with `reference`,
   adds its fields to the memory or makes room, and calls the kernel again.

Every step takes the address of the context, one block of words with the limits, the columns and the state of the event
at hand; `layout` has the offsets. With arrays in its place, the decoder was measured four to five times slower
(docs/adr/0009).

Read `layout`, `scanner`, `keys`, then `strings`, `numbers`, `times`, `values`, `categories` and `finish`. `fields` is
the Python side, which fills the memory. `requests` is apart: it finds the events of an HTTP request, which are then
decoded here.
"""
