"""A model's answers to the rows of a file or of standard input, as JSON lines: what the verb `predict` runs.

They come in the order of the rows, and no more of either is held than some batches need.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, tee
from pathlib import Path

from bert_jax.data.examples.columns import EVIDENT, LABELS, TAGS, Columns, Located
from bert_jax.data.examples.example import Example
from bert_jax.errors import BertJaxError
from bert_jax.files import to_json
from bert_jax.inference.model import Model, load
from bert_jax.output import refuse_input, streaming
from bert_jax.predictions.kind import Kind
from bert_jax.text import tables
from bert_jax.text.inputs import ending
from bert_jax.text.lines import LineReader

NOT_ASKED = {*LABELS, *TAGS, "answers"}  # columns that may be there, right or wrong


def write(
    directory, source: str = "-", output: str | None = None, columns: Columns = EVIDENT, long: str = "cut",
    may_be_missing: bool | None = None, precision: float | None = None,
) -> None:  # fmt: skip
    """A JSON object for each row, on standard output or in a file, which then is whole or not there."""
    refuse_input(output, source)

    def lines() -> Iterator[str]:
        for prediction in predictions(load(directory), source, columns, long, may_be_missing, precision):
            yield to_json(prediction)

    if output is None:
        for line in lines():
            print(line)
        return
    count = 0
    with streaming(Path(output)) as file:
        for count, line in enumerate(lines(), 1):  # noqa: B007
            file.write(line + "\n")
    print(f"{count:,} predictions in {output}", file=sys.stderr)


def predictions(
    model: Model,
    source: str,
    columns: Columns = EVIDENT,
    long: str = "cut",
    may_be_missing: bool | None = None,
    precision: float | None = None,
) -> Iterator[dict]:
    """With a `precision`, each prediction tells whether a calibrated model abstains from it."""
    kind = model.kind.with_options(may_be_missing=may_be_missing)
    enough = None if precision is None else kind.floor(model.calibration, precision)
    first, examples = peeked(examples_of(source, columns, kind))
    if first is None:
        raise BertJaxError(
            f"{'standard input' if source == '-' else source} is empty: there is nothing to predict"
        )
    examples, asked = tee(examples)
    texts = (example.text for example in asked)
    objects = model.outcomes(kind, texts, lambda raw: kind.as_json(raw, model.calibration, enough), long)
    for example, prediction in zip(examples, objects, strict=True):
        yield ({"id": example.id} if example.id else {}) | prediction


def examples_of(source: str, columns: Columns, kind: Kind) -> Iterator[Example]:
    """Without their labels, whether there are any or not."""
    suffix = "" if source == "-" or source.startswith("tfds:") else ending(source)
    if (examples := kind.read_file(source, columns, suffix)) is not None:
        return examples
    plain = source == "-" or suffix == ".txt"
    first, rows = peeked(line_rows(source) if plain else tables.read_rows(source, columns.numbered))
    row = first[1] if first else {}
    if not columns.id and "id" in row:
        columns = replace(columns, id="id")
    asked = (
        (
            where,
            {name: value for name, value in row.items() if name not in NOT_ASKED or name in columns.named},
        )
        for where, row in rows
    )
    return kind.read_rows(asked, columns, row)


def line_rows(source: str) -> Iterator[Located]:
    """Lines that are JSON objects, if the first one is, or else each a text."""
    reader = LineReader(source)
    first, lines = peeked(iter(reader))
    if first and first.lstrip().startswith("{"):
        return tables.json_rows(reader.name, lines)
    return tables.number_rows(reader.name, ({"text": line.rstrip("\r\n")} for line in lines))


def peeked(items: Iterator) -> tuple:
    """(the first or None, all of them)."""
    items = iter(items)
    for first in items:
        return first, chain([first], items)
    return None, items
