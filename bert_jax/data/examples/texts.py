"""Texts and pairs of texts with a class, several labels or a number, as rows of tables hold them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from bert_jax.data.examples import glue
from bert_jax.data.examples.cells import Classes, blank, label_in, name_in, number_in, several_in
from bert_jax.data.examples.columns import EVIDENT, Columns, Located, text_and_label
from bert_jax.data.examples.example import KINDS, Example, collect
from bert_jax.errors import BertJaxError, nearest
from bert_jax.text import tables
from bert_jax.text.tables import text_in


def read_texts(
    spec: str, columns: Columns = EVIDENT, kind: str = "classes", most: int = 0, need_label: bool = True
) -> list[Example]:
    """At most `most` examples, 0: all of them."""
    task = glue.task_of(spec)
    if task:
        if task.kind != kind:
            raise BertJaxError(f'{spec} has labels of kind "{task.kind}", not "{kind}"')
        texts, label = glue.columns_of(spec, task)
        if not columns.text:
            columns = replace(columns, text=texts[0], pair=columns.pair or "".join(texts[1:]))
        columns = replace(columns, label=columns.label or label)
    rows = tables.read_rows(spec, columns.numbered)
    return collect(spec, texts_in_rows(rows, columns, kind, need_label, task), most)


def texts_in_rows(
    rows: Iterable[Located],
    columns: Columns = EVIDENT,
    kind: str = "classes",
    need_label: bool = True,
    task: glue.Task | None = None,
) -> Iterator[Example]:
    """Rows as they come, in flat memory."""
    if kind not in KINDS:
        raise BertJaxError(f'no kind "{kind}" of labels; {nearest(kind, KINDS)}')
    class_of = Classes()
    texts: tuple[str, ...] = ()
    for where, row in rows:
        if not texts:
            texts, label_column = text_and_label(where, row, columns, need_label)
        parts = tuple(text_in(where, row, column) for column in texts)
        empty = [column for column, part in zip(texts, parts, strict=True) if not part.strip()]
        # QQP has pairs with an empty half, and they count.
        if empty and (not task or len(empty) == len(parts)):
            raise blank(where, empty[0])
        label = label_in(where, row, label_column, need_label, may_be_blank=kind == "labels")
        if label is not None:
            cell = f'{where}: column "{label_column}"'
            if kind == "number":
                label = number_in(cell, label)
            elif kind == "labels":
                label = several_in(cell, label, columns.separator, class_of)
            else:
                label = class_of(cell, label)
                if task and label.isdecimal() and int(label) < len(task.labels):
                    label = task.labels[int(label)]
        text = parts if len(parts) > 1 else parts[0]
        yield Example(
            text, label, where, name_in(where, row, columns.id), name_in(where, row, columns.document)
        )
