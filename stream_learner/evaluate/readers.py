"""Files as a source of blocks, and the readers that turn blocks of each format into examples.

Readers copy what a parser hands out, because a parser uses its memory again for the next block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from stream_learner.core.events.feature_keys import NEWEST_RULE
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.parts import DECODING, HASHING, compile_parts
from stream_learner.errors import ConfigError
from stream_learner.evaluate.compiling import notice_if_slow
from stream_learner.evaluate.example_block import ExampleBlock, RecordMaker
from stream_learner.evaluate.files.formats import FORMATS, Format, guess_separator
from stream_learner.evaluate.files.lines import Block
from stream_learner.evaluate.files.parquet import TableBlock
from stream_learner.evaluate.files.reading import BlockParser, Meaning, block_parsers, nothing_but, open_source
from stream_learner.evaluate.files.source import TextSource
from stream_learner.evaluate.files.streams import name_of
from stream_learner.evaluate.formats.base import Parsed
from stream_learner.evaluate.pipeline import Reader, Source
from stream_learner.evaluate.request import EvaluationRequest

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.evaluate.formats.vw.parser import VwTextOptions

AUTO: Final = "auto"
OPTION_FORMATS: Final[dict[str, tuple[Format, ...]]] = {
    **dict.fromkeys(("-q", "--cubic", "--ngram", "--skips", "--ignore", "--noconstant"), ("vw",)),
    **dict.fromkeys(("--columns", "--separator"), ("csv",)),
    **dict.fromkeys(("--label", "--weight", "--drop", "--categorical"), ("csv", "json", "parquet")),
}
"""The formats that an option applies to."""


class FileReaders:
    """The files of a request: their format, and readers for their blocks."""

    def __init__(
        self, request: EvaluationRequest, named_by_tool: Sequence[str] = (), key_rule: int = NEWEST_RULE
    ) -> None:
        """named_by_tool: the files that VW command lines name, used if the request names none. key_rule: the key rule
        of the models, for formats whose keys depend on it.

        Raises ConfigError without any file or for an unknown format, BadInput for files that cannot be read.
        """
        files = request.files or tuple(dict.fromkeys(named_by_tool))
        if not files:
            raise ConfigError(
                "there is nothing to evaluate on",
                action="Name files of examples, - for standard input, or a training log with --log -c FILE.",
            )
        known = (AUTO, *FORMATS)
        if request.format not in known:
            raise ConfigError(f"--format {request.format} is unknown", action=f"Use one of {', '.join(known)}.")
        self._request = request
        self._key_rule = key_rule
        self.files = files
        self._name = name_of(files[0])
        self._files, self.format = open_source(files, _given(request.format))
        self.source: Source = self._files
        self._check_options()

    def reader_of(self, reading: Any) -> Callable[[], Reader]:
        """A function that makes readers. reading: None for this project's features, or the text options of a VW
        command.

        Raises BadInput if columns are missing, ConfigError for options that contradict each other.
        """
        if self.format == "vw":
            make = _vw_text(self._text_options() if reading is None else reading)
        elif reading is None:
            try:
                make = block_parsers(self._files, self.format, self._meaning())
            except ValueError as error:
                raise ConfigError(str(error), action="Correct the options that name columns.") from None
        else:
            raise ConfigError(
                f"--vw reads VW text, and {self._name} holds {self.format}",
                action="Use --learn for it, or convert it to VW text.",
            )
        return lambda: BlockReader(make())

    def compile_parsers(self, makers: Iterable[Callable[[], Reader]], say: Callable[[str], None]) -> None:
        """Load or compile the parsers, before the clock starts."""
        with notice_if_slow(say, "compiling the parser, once on this machine; later starts take it from the cache"):
            if self.format not in ("vw", "libsvm"):
                compile_parts([HASHING, DECODING])
                return
            for make in makers:
                make()(Block(b"", 2, self.files[0]))

    def _check_options(self) -> None:
        """Raise ConfigError for an option that does not apply to this format."""
        given = [*self._request.text.given(), *self._request.table.given()]
        for option in given:
            if self.format not in OPTION_FORMATS[option]:
                raise ConfigError(
                    f"{option} means nothing for {self.format}, which {self._name} holds",
                    action=f"Leave it out; it is for {', '.join(OPTION_FORMATS[option])}.",
                )

    def _text_options(self) -> VwTextOptions:
        from stream_learner.evaluate.formats.vw.parser import VwTextOptions

        text = self._request.text
        try:
            return VwTextOptions(
                quadratic=text.quadratic,
                cubic=text.cubic,
                ngram=text.ngram,
                skips=text.skips,
                ignore="".join(text.ignore),
                noconstant=text.noconstant,
            )
        except ValueError as error:
            raise ConfigError(f"VW text: {error}", action="Correct -q, --cubic, --ngram or --skips.") from None

    def _meaning(self) -> Meaning:
        """The meaning of columns and fields, from the options and the configuration. Raises ValueError."""
        table, config = self._request.table, self._request.config
        if config is not None:
            check_key_rule(self._key_rule, config)
        spec = replace(FeatureSpec() if config is None else config.feature_spec(), key_rule=self._key_rule)
        weight, ignore = table.weight, []
        if config is not None and self.format == "json":
            event = config.event_specs()[0]
            weight = weight or event.weight
            ignore = [name for name in (event.id, event.time) if name in event.paths(spec)]
        if table.drop or table.categorical:
            spec = replace(
                spec,
                exclude=(*spec.exclude, *table.drop),
                categorical=tuple(dict.fromkeys((*spec.categorical, *table.categorical))),
            )
        return Meaning(
            label=table.label,
            weight=weight,
            labelled=not self._request.test,
            columns=table.columns,
            separator=table.separator or self._separator(),
            ignore=tuple(ignore),
            features=spec,
        )

    def _separator(self) -> str:
        files = self._files
        return guess_separator(files) if self.format == "csv" and isinstance(files, TextSource) else ","


def check_key_rule(rule: int, config: Config) -> None:
    """Raise ConfigError if a loaded model has keys of another rule than the configuration's."""
    if config.features.key_rule not in (None, rule):
        raise ConfigError(
            f"the model was saved with key rule {rule}, features.key_rule is {config.features.key_rule}",
            action=f"Set features.key_rule to {rule}, or leave --load out.",
        )


class BlockReader:
    """Parses blocks and makes records of their examples. One thread at a time."""

    def __init__(self, parse: BlockParser) -> None:
        self._parse = parse
        self._maker = RecordMaker()

    def __call__(self, block: Any) -> ExampleBlock:
        parsed = self._parse(block)
        return ExampleBlock(
            self._maker.records(parsed.batch),
            parsed.labelled.astype(np.bool_),
            list(parsed.tags),
            list(parsed.faults),
            name_of(block.path),
        )


def _given(text: str) -> Format | None:
    return None if text == AUTO else cast(Format, text)


def _vw_text(options: VwTextOptions) -> Callable[[], BlockParser]:
    """A function that makes parsers of VW text."""
    from stream_learner.evaluate.formats.vw.parser import VwText

    def make() -> BlockParser:
        parser = VwText(options)

        def parse(block: Block | TableBlock) -> Parsed:
            assert isinstance(block, Block)
            return nothing_but(block) if block.faults else parser.parse(block.text, block.first_line)

        return parse

    return make
