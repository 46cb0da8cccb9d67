r"""The texts whose hashes are the keys of features, and the two rules for the names in them.

In: the name of a field, inside objects joined with `.`. Out: how it stands in a text, so that a text tells what it is.
This file must never change what a rule gives: models, logs and scorers in other languages hold keys made by it.

| a feature | its text |
|---|---|
| number | `N` |
| category: string, boolean, integer of a categorical field, bucket i as `b<i>` | `N=value` |
| missing indicator | `N:missing` |
| bias | the empty text |

`N` is the name of the field: as it is by rule 1; by rule 2 with `\` before every `\`, every `=`, and the `:` of
`:missing` at its end, and `\e` for the empty name. So by rule 2 no two features have the same text: the first `=`
without a `\` of its own ends the name of a category, an indicator ends in `:missing` without that `\`, and only the
bias is empty. By rule 1 the number field `a=b` is the category `b` of field `a`, the number field `a:missing` the
indicator of `a`, and the number field with the empty name the bias. All other names have the same text by both.

One feature on purpose, by both rules: a field by its joined name, so that `{"a.b": 1}` and `{"a": {"b": 1}}` are one,
as they are in `include`, `fields` and crosses; the elements of a list and the list's field; a category by its text, so
that true is "true", 7 of a categorical field is "7", and bucket 3 is the string "b3" of the same field. A cross hashes
the bytes of its keys, not a text: it agrees with another cross, or with a text, no sooner than any two hashes do.
"""

from __future__ import annotations

FIRST_RULE = 1
"""Names as they are. Specifications that name no rule were written before there was another, and mean this one."""

NEWEST_RULE = 2

KEY_RULES = (FIRST_RULE, NEWEST_RULE)

_INDICATOR = ":missing"


def name_in_keys(name: str, rule: int) -> str:
    r"""How the name of a field stands in the texts that are hashed.

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
    """The most bytes of `N=value` for a name and a value of so many bytes each: a name at most doubles."""
    return 3 * longest_bytes + 1
