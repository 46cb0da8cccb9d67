r"""The texts whose hashes are the keys of features, and the three rules for them.

The result of a rule must never change: models, logs and scorers in other languages hold keys made by it.

| a feature | its text |
|---|---|
| number | `N` |
| category: string, boolean, integer of a categorical field, bucket i as `b<i>`, hour or weekday of a time | `N=value` |
| number of kind `auto` by rule 3: the category of its size s | `N=b<s>`, s in four digits |
| missing indicator | `N:missing` |
| bias | the empty text |

`N` is the name of the field; names of fields inside objects are joined with `.`. Rule 1 takes the name as it is.
Rule 2 puts `\` before every `\`, every `=`, and the `:` of a `:missing` at the end, and writes the empty name as `\e`.
So by rule 2 no two features have the same text: the first `=` without a `\` of its own ends the name of a category,
an indicator ends in `:missing` without that `\`, and only the bias is empty. By rule 1 the number field `a=b` is the
category `b` of field `a`, the number field `a:missing` is the indicator of `a`, and the number field with the empty
name is the bias. All other names have the same text by both rules. Rule 3 writes names as rule 2 does.

By rules 1 and 2 a number of kind `auto` is a number. By rule 3 it is a category, so that its value never scales a
weight: the size of a number is the first 13 bits of its float64, which are its sign, its exponent, and whether it lies
in the upper half of the numbers of that exponent. So 0, 1, 2 and 3 have sizes of their own, 4 and 5 share one, as do 6
and 7, 8 to 11, and so on: two sizes from each power of two to the next, for fractions too, and as many below zero. A
size is exact on every machine and in every language. `docs/evidence-numbers.md` has what was measured to choose it.

By all rules these are one feature on purpose: fields with the same joined name, so `{"a.b": 1}` and
`{"a": {"b": 1}}`, as in `include`, `fields` and crosses; the elements of a list; categories with the same text, so true
and "true", 7 of a categorical field and "7", bucket 3 and the string "b3", size 3 and the string "b0003" of the same
field. A cross hashes the bytes of its keys, not a text: it agrees with another cross, or with a text, as rarely as any
two hashes do.
"""

from __future__ import annotations

import struct

FIRST_RULE = 1
"""Names as they are. A specification that names no rule was written before there was another, and means this one."""

SIZE_RULE = 3
"""The first rule by which a number of kind `auto` is the category of its size."""

NEWEST_RULE = 3

KEY_RULES = (FIRST_RULE, 2, NEWEST_RULE)

SIZE_SHIFT = 51
"""The bits of a float64 that do not count for its size."""

_INDICATOR = ":missing"


def name_in_keys(name: str, rule: int) -> str:
    r"""The name of a field as it stands in the texts that are hashed.

    >>> name_in_keys("user.age", 2), name_in_keys("a=b", 1), name_in_keys("a=b", 2), name_in_keys("", 2)
    ('user.age', 'a=b', 'a\\=b', '\\e')
    """
    if rule == FIRST_RULE:
        return name
    if not name:
        return r"\e"
    text = name.replace("\\", r"\\").replace("=", r"\=")
    if text.endswith(_INDICATOR):
        text = text.removesuffix(_INDICATOR) + "\\" + _INDICATOR
    return text


def size_text(number: float) -> str:
    """The size of a number as it stands after `N=`; that of -0 is that of 0.

    >>> [size_text(number) for number in (0, 1, 360, 383.5, 384, -1, 0.75)]
    ['b0000', 'b2046', 'b2062', 'b2062', 'b2063', 'b6142', 'b2045']
    """
    (bits,) = struct.unpack("<Q", struct.pack("<d", number + 0.0))
    return f"b{bits >> SIZE_SHIFT:04d}"


def longest_text(longest_bytes: int) -> int:
    """The most bytes of `N=value` for a name and a value of `longest_bytes` each: a name at most doubles."""
    return 3 * longest_bytes + 1
