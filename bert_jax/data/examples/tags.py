"""Read sentences as words with tags, from tables that hold lists or from files in CoNLL's format."""

from collections.abc import Iterable, Iterator
from itertools import chain

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.cells import Classes, label_in, listed, name_in, words_in
from bert_jax.data.examples.columns import EVIDENT, Columns, Located, words_and_tags
from bert_jax.data.examples.example import Example, collect
from bert_jax.data.examples.rows import examples_in_rows, rows_begun
from bert_jax.text import tables
from bert_jax.text.inputs import NOT_FILES, ending, expand
from bert_jax.text.lines import LineReader
from bert_jax.text.tables import BadRow, Row, cell

MOST_PARTS = 5  # the most words in a cell that still counts as one word, such as New York


def read_tags(spec: str, columns: Columns = EVIDENT, most: int = 0, need_label: bool = True) -> list[Example]:
    """Read at most `most` examples, drawn at random; 0: all of them."""
    return collect(spec, tags_in(spec, columns, need_label), most)


def tags_in(spec: str, columns: Columns, need_label: bool) -> Iterator[Example]:
    for name in expand([spec]):
        # Other files are read as CoNLL. So are .tsv and .txt: CoNLL's columns may be separated by tabs.
        if name.startswith(NOT_FILES) or ending(name) in set(tables.ENDINGS) - {".tsv", ".txt"}:
            yield from tags_in_rows(
                tables.rows_of_file(name, columns.numbered, keep_broken=True), columns, need_label
            )
        else:
            documents = any(line.startswith("-DOCSTART-") for line in LineReader(name))
            yield from conll(name, LineReader(name), need_label, documents)


def tags_in_rows(
    rows: Iterable[Located], columns: Columns = EVIDENT, need_label: bool = True
) -> Iterator[Example]:
    first, rows = rows_begun(rows)
    if first is None:
        return
    columns = columns.of(*first)
    class_of, (words_column, tags_column) = Classes(), words_and_tags(*first, columns, need_label)

    def example_in(where: str, row: Row) -> Example:
        words = words_in(f'{where}: column "{words_column}"', cell(where, row, words_column))
        tags = label_in(where, row, tags_column, need_label)
        if tags is not None:
            tags_cell = f'{where}: column "{tags_column}"'
            tags = tuple(class_of(tags_cell, tag) for tag in listed(tags_cell, tags))
            if len(tags) != len(words):
                raise BadRow(f"{where} has {len(words)} words but {len(tags)} tags; give each word one tag")
        return Example(
            words, tags, where, name_in(where, row, columns.id), name_in(where, row, columns.document)
        )

    yield from examples_in_rows(rows, example_in, columns, is_whole=need_label)


def conll(
    name: str, lines: Iterable[str], need_label: bool = True, documents: bool = False
) -> Iterator[Example]:
    """Read CoNLL's format: a word per line, with its tag in the last column. Blank lines separate sentences, and
    -DOCSTART- lines separate documents."""
    words: list[str] = []
    tags: list[str] = []
    start, width, document = 0, 0, 1
    for number, line in enumerate(chain(lines, [""]), 1):
        line = line.strip(" \r\n")
        cells = line.split("\t") if "\t" in line else [part for part in line.split(" ") if part]
        if not any(cells) or cells[0] == "-DOCSTART-":
            if words:
                label = tuple(tags) if width > 1 else None
                within = f"{name} document {document}" if documents else ""
                yield Example(tuple(words), label, f"{name} row {start}", "", within)
            words, tags = [], []
            document += any(cells)
            continue
        width, where = width or len(cells), f'{name} row {number} ("{line[:40]}")'
        if len(cells) != width or not all(part.strip() for part in (cells[0], cells[-1])):
            raise BertJaxError(f"{where} does not have the {width} columns of the rows before it")
        if width == 1 and need_label:
            raise BertJaxError(f"{where} has one column; two are needed, a word and its tag")
        if len(cells[0].split()) > MOST_PARTS:
            raise BertJaxError(
                f"{where} has a text in its first column, not a word; put each word on a line of its own"
            )
        start = start if words else number
        words.append(cells[0])
        tags.append(cells[-1])
