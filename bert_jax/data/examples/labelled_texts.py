"""Read texts and pairs of texts with a class, several labels or a number, from the rows of tables."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples import glue
from bert_jax.data.examples.cells import (
    CLASS_FORMAT,
    LabelFormat,
    empty_cell_error,
    read_label_cell,
    read_name_cell,
)
from bert_jax.data.examples.columns import AUTODETECT, SEPARATOR, ExampleColumns, LocatedRow, text_and_label
from bert_jax.data.examples.example import Example, collect_examples
from bert_jax.data.examples.row_parsing import parse_examples, peek_readable_row
from bert_jax.text import tables
from bert_jax.text.tables import Row, get_text_cell


def read_labelled_texts(
    spec: str,
    columns: ExampleColumns = AUTODETECT,
    cells: LabelFormat = CLASS_FORMAT,
    most: int = 0,
    need_label: bool = True,
) -> list[Example]:
    """Read at most `most` examples, drawn at random; 0: all of them."""
    task = glue.find_glue_task(spec)
    if task:
        if task.kind != cells.kind:
            raise BertJaxError(
                f'{spec} has labels of kind "{task.kind}", but the model predicts "{cells.kind}"'
            )
        texts, label = glue.glue_columns(spec, task)
        if not columns.text:
            columns = replace(columns, text=texts[0], text_pair=columns.text_pair or "".join(texts[1:]))
        columns = replace(columns, label=columns.label or label)
    rows = tables.read_table_rows(spec, columns.numbered, keep_broken=True)
    return collect_examples(spec, parse_labelled_texts(rows, columns, cells, need_label, task), most)


def parse_labelled_texts(
    rows: Iterable[LocatedRow],
    columns: ExampleColumns = AUTODETECT,
    cells: LabelFormat = CLASS_FORMAT,
    need_label: bool = True,
    task: glue.GlueTask | None = None,
    pairs: bool = True,
) -> Iterator[Example]:
    """Yield the example of each row, one at a time, so that memory stays flat. Without `pairs`, a row has one text."""
    first, rows = peek_readable_row(rows)
    if first is None:
        return
    columns = columns.resolve(*first)
    texts, label_column = text_and_label(*first, columns, need_label, pairs)
    read_label = cells.make_parser(columns.label_separator or SEPARATOR)

    def parse_example(where: str, row: Row) -> Example:
        parts = tuple(get_text_cell(where, row, column) for column in texts)
        empty = [column for column, part in zip(texts, parts, strict=True) if not part.strip()]
        # GLUE's QQP has pairs with one empty text, and they count in its scores.
        if empty and (not task or len(empty) == len(parts)):
            raise empty_cell_error(where, empty[0])
        label = read_label_cell(where, row, label_column, need_label, cells.may_be_blank)
        if label is not None:
            label = read_label(f'{where}: column "{label_column}"', label)
            if task and task.labels and label.isdecimal() and int(label) < len(task.labels):
                label = task.labels[int(label)]
        id, group = (read_name_cell(where, row, name) for name in (columns.id, columns.group))
        return Example(parts if len(parts) > 1 else parts[0], label, where, id, group)

    yield from parse_examples(rows, parse_example, columns.skip_bad, is_whole=need_label)
