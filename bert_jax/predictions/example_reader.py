"""The base of the readers of examples: they read labelled texts and pairs, and encode texts as windows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.data.examples.cells import CLASS_FORMAT, LabelFormat
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns, LocatedRow
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.labelled_texts import parse_labelled_texts, read_labelled_texts
from bert_jax.text.encoding import Encoding
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextWindows:
    """A text, encoded as the windows that a model reads."""

    encodings: list[Encoding]
    extra: Any = None  # what else a decoder needs to combine the logits of the windows


@dataclass(frozen=True)
class ExampleReader:
    label_format: LabelFormat = CLASS_FORMAT

    def read(self, spec: str, columns: ExampleColumns = AUTODETECT, most: int = 0) -> list[Example]:
        """Read a file's labelled examples: a random sample of at most `most`, or all if `most` is 0."""
        return read_labelled_texts(spec, columns, self.label_format, most)

    def describe_columns(self, spec: str, columns: ExampleColumns) -> str:
        """Describe which column of a labelled table is used for what; "" if usual names and the flags say it all."""
        return ""

    def complete_columns(self, where: str, row: Mapping, columns: ExampleColumns) -> ExampleColumns:
        """Return the columns of an unlabelled table with this first row, completed by those that this kind alone
        finds."""
        return columns

    def read_unlabelled(self, source: str, columns: ExampleColumns, ending: str) -> Iterator[Example] | None:
        """Read unlabelled examples from a file that is not a table; return None if it is a table."""
        return None

    def read_unlabelled_rows(
        self, rows: Iterable[LocatedRow], columns: ExampleColumns, first: Mapping
    ) -> Iterator[Example]:
        """Read unlabelled examples from the rows of a table; `first` is its first row."""
        return parse_labelled_texts(rows, columns, need_label=False)

    def encode(
        self, tokenizer: Tokenizer, texts: Sequence, encoding_options: EncodingOptions
    ) -> list[TextWindows]:
        return [TextWindows(encodings) for encodings in encoding_options.encode(tokenizer, texts)]
