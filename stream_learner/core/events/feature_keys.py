r"""The texts whose hashes are the keys of features, and the two rules for the names in them.

The result of a rule must never change: models, logs and scorers in other languages hold keys made by it.

| a feature | its text |
|---|---|
| number | `N` |
| category: string, boolean, integer of a categorical field, bucket i as `b<i>` | `N=value` |
| missing indicator | `N:missing` |
| bias | the empty text |

`N` is the name of the field; names of fields inside objects are joined with `.`. Rule 1 takes the name as it is.
Rule 2 puts `\` before every `\`, every `=`, and the `:` of a `:missing` at the end, and writes the empty name as `\e`.
So by rule 2 no two features have the same text: the first `=` without a `\` of its own ends the name of a category,
an indicator ends in `:missing` without that `\`, and only the bias is empty. By rule 1 the number field `a=b` is the
category `b` of field `a`, the number field `a:missing` is the indicator of `a`, and the number field with the empty
name is the bias. All other names have the same text by both rules.

By both rules these are one feature on purpose: fields with the same joined name, so `{"a.b": 1}` and `{"a": {"b": 1}}`,
as in `include`, `fields` and crosses; the elements of a list; categories with the same text, so true and "true", 7 of
a categorical field and "7", bucket 3 and the string "b3" of the same field. A cross hashes the bytes of its keys, not a
text: it agrees with another cross, or with a text, as rarely as any two hashes do.
"""

from __future__ import annotations

FIRST_RULE = 1
"""Names as they are. A specification that names no rule was written before there was another, and means this one."""

NEWEST_RULE = 2

KEY_RULES = (FIRST_RULE, NEWEST_RULE)

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


def longest_text(longest_bytes: int) -> int:
    """The most bytes of `N=value` for a name and a value of `longest_bytes` each: a name at most doubles."""
    return 3 * longest_bytes + 1
