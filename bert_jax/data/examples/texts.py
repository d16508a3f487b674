"""Read texts and pairs of texts with a class, several labels or a number, from the rows of tables."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples import glue
from bert_jax.data.examples.cells import CLASSES, LabelCells, blank, label_in, name_in
from bert_jax.data.examples.columns import EVIDENT, SEPARATOR, Columns, Located, text_and_label
from bert_jax.data.examples.example import Example, collect
from bert_jax.data.examples.rows import examples_in_rows, rows_begun
from bert_jax.text import tables
from bert_jax.text.tables import Row, text_in


def read_texts(
    spec: str, columns: Columns = EVIDENT, cells: LabelCells = CLASSES, most: int = 0, need_label: bool = True
) -> list[Example]:
    """Read at most `most` examples, drawn at random; 0: all of them."""
    task = glue.task_of(spec)
    if task:
        if task.kind != cells.kind:
            raise BertJaxError(f'{spec} has labels of kind "{task.kind}", not "{cells.kind}"')
        texts, label = glue.columns_of(spec, task)
        if not columns.text:
            columns = replace(columns, text=texts[0], pair=columns.pair or "".join(texts[1:]))
        columns = replace(columns, label=columns.label or label)
    rows = tables.read_rows(spec, columns.numbered, keep_broken=True)
    return collect(spec, texts_in_rows(rows, columns, cells, need_label, task), most)


def texts_in_rows(
    rows: Iterable[Located],
    columns: Columns = EVIDENT,
    cells: LabelCells = CLASSES,
    need_label: bool = True,
    task: glue.Task | None = None,
    pairs: bool = True,
) -> Iterator[Example]:
    """Yield the example of each row, one at a time, so that memory stays flat. Without `pairs`, a row has one text."""
    first, rows = rows_begun(rows)
    if first is None:
        return
    columns = columns.of(*first)
    texts, label_column = text_and_label(*first, columns, need_label, pairs)
    read_label = cells.reader(columns.separator or SEPARATOR)

    def example_in(where: str, row: Row) -> Example:
        parts = tuple(text_in(where, row, column) for column in texts)
        empty = [column for column, part in zip(texts, parts, strict=True) if not part.strip()]
        # GLUE's QQP has pairs with one empty text, and they count in its scores.
        if empty and (not task or len(empty) == len(parts)):
            raise blank(where, empty[0])
        label = label_in(where, row, label_column, need_label, cells.may_be_blank)
        if label is not None:
            label = read_label(f'{where}: column "{label_column}"', label)
            if task and task.labels and label.isdecimal() and int(label) < len(task.labels):
                label = task.labels[int(label)]
        text = parts if len(parts) > 1 else parts[0]
        return Example(
            text, label, where, name_in(where, row, columns.id), name_in(where, row, columns.document)
        )

    yield from examples_in_rows(rows, example_in, columns, is_whole=need_label)
