"""The options of `evaluate`, as annotated types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Files: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="Examples, gz, zst or plain, read one after the other; - is stdin."),
]
Learn: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--learn",
        metavar='"OPTIMIZER NAME=VALUE …"',
        help="A configuration to evaluate; name=a,b makes one for each value; repeatable.",
    ),
]
Vw: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--vw", metavar='"FLAGS"', help="A Vowpal Wabbit command line to evaluate, over VW text; repeatable."),
]
Load: TypeAlias = Annotated[
    Path | None,
    typer.Option("--load", metavar="FILE", help="Go on with a model that --save has written, to the same bits."),
]
Test: TypeAlias = Annotated[bool, typer.Option("--test", "-t", help="Only predict: learn from no example.")]
Format: TypeAlias = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="auto|vw|libsvm|csv|json|parquet",
        help="What the files hold; auto goes by their names and first bytes.",
    ),
]
Log: TypeAlias = Annotated[
    bool, typer.Option("--log", help="Read the training log of the configuration, as it is now.")
]
SkipBad: TypeAlias = Annotated[
    int, typer.Option("--skip-bad", min=0, metavar="N", help="Leave out up to N lines that cannot be read.")
]
Quadratic: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--quadratic", "-q", metavar="AB", help="Pairs of features of two namespaces; repeatable."),
]
Cubic: TypeAlias = Annotated[
    list[str] | None, typer.Option("--cubic", metavar="ABC", help="Triples of features; repeatable.")
]
Ngram: TypeAlias = Annotated[int, typer.Option(min=1, metavar="N", help="N features in a row as one more.")]
Skips: TypeAlias = Annotated[int, typer.Option(min=0, metavar="N", help="N-grams may leave out so many.")]
Ignore: TypeAlias = Annotated[
    list[str] | None, typer.Option("--ignore", metavar="A", help="A namespace to leave out; repeatable.")
]
NoConstant: TypeAlias = Annotated[bool, typer.Option("--noconstant", help="No constant feature.")]
Label: TypeAlias = Annotated[str | None, typer.Option("--label", metavar="NAME", help="Column or field of the label.")]
Weight: TypeAlias = Annotated[
    str | None, typer.Option("--weight", metavar="NAME", help="Column or field of the importance.")
]
Columns: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="A,B,…", help="Names of the columns, where no header has them.")
]
Separator: TypeAlias = Annotated[
    str | None, typer.Option(metavar="CHAR", help="Between columns; by default as the header shows.")
]
Drop: TypeAlias = Annotated[
    list[str] | None, typer.Option("--drop", metavar="A,B,…", help="Columns to leave out; repeatable.")
]
Categorical: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="A,B,…", help="Columns whose numbers are names of categories; repeatable.")
]
Passes: TypeAlias = Annotated[int, typer.Option(min=1, metavar="N", help="Passes over the examples, at most.")]
HoldoutOff: TypeAlias = Annotated[bool, typer.Option("--holdout-off", help="Hold nothing out in several passes.")]
HoldoutPeriod: TypeAlias = Annotated[
    int, typer.Option("--holdout-period", min=2, metavar="N", help="Hold out every Nth example.")
]
Predictions: TypeAlias = Annotated[
    Path | None, typer.Option("--predictions", "-p", metavar="FILE", help="Write the predictions of the first pass.")
]
Save: TypeAlias = Annotated[Path | None, typer.Option(metavar="DIR", help="Write each model at the end, a file each.")]
Curve: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Learning curves: .png, .svg and .pdf plots, .json points.")
]
