"""VW text: Vowpal Wabbit's format for examples, as it is parsed here.

    1 2.5 'tag | bias:1 |user:0.5 age:31 city=paris |ad id=a1
    | |    |   | |       |    |       |  |
    | |    |   | |       |    |       |  a feature without a number: its number is 1
    | |    |   | |       |    |       the feature's number, which is multiplied by the scale
    | |    |   | |       |    the scale of the namespace, 1 if left out
    | |    |   | |       a namespace: the bar touches its name; its first letter stands for it in -q ua
    | |    |   | a feature of the namespace without a name
    | |    |   the bar that ends the labels
    | |    a tag: it touches the bar, or begins with a quote and is the last word before it
    | importance, 1 if left out
    label; a line without one is only predicted

One line becomes one example in four steps:

1. `line` reads label, importance and tag, then the namespaces. Each feature gets a key (`names`) and a value
   (`numbers`) and is appended to the columns of the block; each stretch of features of one namespace is noted as a
   *segment*.
2. `arrange` groups the segments by first letter, in the order of first occurrence, and adds what the options ask for:
   n-grams behind each group, the constant feature, interactions of the groups.
3. Values of equal keys are summed, unless each repeat is to be a feature of its own, as VW has it.
4. `kernel` counts the example, or notes a fault with its column and drops the features again.

There are two ways to hash. Ours gives 64-bit keys, the same as for events with fields `namespace^name`, so models of
files and of streams can be compared. VW's gives an index of `bits` bits, the only way to its printed digits.

A kernel stops (`layout`: GROW, DOUBT, LETTER) where it needs Python: for more memory; for a decimal number whose
nearest float64 64 bits cannot decide; for a letter that a wildcard of an interaction has not met. `parser` provides it,
and the kernel reads that line again from its start.
"""
