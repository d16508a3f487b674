"""Read sentences as words with tags, from tables that hold lists or from files in CoNLL's format."""

from collections.abc import Iterable, Iterator
from itertools import chain

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.cells import ClassParser, parse_list, parse_words, read_label_cell, read_name_cell
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns, LocatedRow, words_and_tags
from bert_jax.data.examples.example import Example, collect_examples
from bert_jax.data.examples.row_parsing import parse_examples, peek_readable_row
from bert_jax.text import tables
from bert_jax.text.input_files import NOT_FILES, expand_inputs, file_extension
from bert_jax.text.line_reader import LineReader
from bert_jax.text.tables import BadRowError, Row, get_cell

# Other files are read as CoNLL. So are .tsv and .txt: CoNLL's columns may be separated by tabs.
TABLES = set(tables.TABLE_EXTENSIONS) - {".tsv", ".txt"}
MOST_PARTS = 5  # the most words in a cell that still counts as one word, such as New York


def read_tags(
    spec: str, columns: ExampleColumns = AUTODETECT, most: int = 0, need_label: bool = True
) -> list[Example]:
    """Read at most `most` examples, drawn at random; 0: all of them."""
    return collect_examples(spec, iterate_tagged_words(spec, columns, need_label), most)


def iterate_tagged_words(spec: str, columns: ExampleColumns, need_label: bool) -> Iterator[Example]:
    for name in expand_inputs([spec]):
        if name.startswith(NOT_FILES) or file_extension(name) in TABLES:
            rows = tables.read_file_rows(name, columns.numbered, keep_broken=True)
            yield from parse_tagged_words(rows, columns, need_label)
        else:
            documents = any(line.startswith("-DOCSTART-") for line in LineReader(name))
            yield from conll(name, LineReader(name), need_label, documents)


def parse_tagged_words(
    rows: Iterable[LocatedRow], columns: ExampleColumns = AUTODETECT, need_label: bool = True
) -> Iterator[Example]:
    first, rows = peek_readable_row(rows)
    if first is None:
        return
    columns = columns.resolve(*first)
    parse_class, (words_column, tags_column) = ClassParser(), words_and_tags(*first, columns, need_label)

    def parse_example(where: str, row: Row) -> Example:
        words = parse_words(f'{where}: column "{words_column}"', get_cell(where, row, words_column))
        tags = read_label_cell(where, row, tags_column, need_label)
        if tags is not None:
            tags_cell = f'{where}: column "{tags_column}"'
            tags = tuple(parse_class(tags_cell, tag) for tag in parse_list(tags_cell, tags))
            if len(tags) != len(words):
                raise BadRowError(
                    f"{where} has {len(words)} words but {len(tags)} tags; give each word one tag"
                )
        id, group = (read_name_cell(where, row, name) for name in (columns.id, columns.group))
        return Example(words, tags, where, id, group)

    yield from parse_examples(rows, parse_example, columns.skip_bad, is_whole=need_label)


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
