"""Read documents from text, Markdown and HTML files, Wikipedia articles, tables, folders of these, and folders in the
layout of BEIR. A file's id is its path in the given folder; a row or an article has its own id, or else FILE:NUMBER.
Documents in a program's memory are texts, pairs (id, text), or dicts."""

import os
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from os.path import exists
from pathlib import Path
from typing import Any, ClassVar

from bert_jax.core.errors import BertJaxError, one_line
from bert_jax.core.hashes import json_digest
from bert_jax.core.surrogates import replace_surrogates
from bert_jax.core.terminal import pluralize
from bert_jax.core.typed_json import type_name
from bert_jax.data.examples.beir import CORPUS, is_beir
from bert_jax.data.examples.cells import read_name_cell
from bert_jax.data.examples.column_names import DOCUMENT_IDS, DOCUMENT_TEXTS, ID, TITLES
from bert_jax.text import document_formats, tables
from bert_jax.text.array_likes import to_plain_list
from bert_jax.text.document_formats import check_length
from bert_jax.text.input_files import MEMORY_PREFIX, expand_inputs, file_extension
from bert_jax.text.line_reader import LineReader, NotTextError, begins_with
from bert_jax.text.tables import get_optional_cell, get_text_cell, match_columns, no_columns

TABLE_ENDINGS = (".jsonl", ".ndjson", ".parquet", ".csv", ".tsv")
ENDINGS = (".txt", *document_formats.READERS, *TABLE_ENDINGS)
TITLE, TEXT = TITLES[0], DOCUMENT_TEXTS[0]
# What is in a program's memory, and all that `Index` takes.
MemoryDocument = str | tuple[str | int, str] | Mapping[str, Any]
Documents = str | PathLike[str] | Sequence[PathLike[str]] | Iterable[MemoryDocument]
FORMS = "a path, or a list of paths, texts, pairs (id, text) or dicts with id and text"


@dataclass(frozen=True)
class Document:
    id: str
    title: str
    text: str

    @property
    def hash(self) -> bytes:
        return bytes.fromhex(json_digest([self.title, self.text]))


@dataclass(frozen=True)
class DocumentColumns:
    """The columns of a table; "" stands for a usual name, if the table has it."""

    text: str = ""
    id: str = ""
    title: str = ""


class NoTextColumn(BertJaxError):
    """Raised if no column of a table is known to hold the text."""


@dataclass
class DocumentSource:
    """The inputs to read, and counts of what was left out or repaired."""

    noun: ClassVar[str] = "file"  # of what may hold invalid characters
    inputs: Sequence[str]
    columns: DocumentColumns = DocumentColumns()
    empty: int = 0  # documents without text
    first_empty: str = ""  # where the first one is
    others: dict[str, int] = field(default_factory=dict)  # other endings -> the number of their files
    binary: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # files with invalid characters
    unknown: list[str] = field(default_factory=list)  # tables in folders and globs, text column unknown
    taken: Container[str] = ()  # ids that the documents of other files than `known` may not have
    known: Collection[str] = ()

    def __post_init__(self):
        self.files: dict[str, str] = {}  # path -> name; each file once
        self.found_in: dict[str, str] = {}  # path -> the input
        for given in self.inputs:
            for path, name in self.list_files(given):
                self.files.setdefault(path, name)
                self.found_in.setdefault(path, given)

    @property
    def name(self) -> str:
        return " ".join(self.inputs)

    def documents(self) -> Iterator[Document]:
        """Yield the documents that have a text, or a title to use as the text. Raise if two have the same id."""
        locations: dict[str, str] = {}
        for where, document in self.read_all():
            if not document.id.strip():
                raise BertJaxError(f"{where} has an empty id; give each document its own id")
            if (before := locations.setdefault(document.id, where)) != where:
                raise BertJaxError(
                    f'{where} has the id "{document.id}" of {before}; give each document its own id'
                )
            if not document.text.strip():
                if not document.title.strip():
                    self.empty += 1
                    self.first_empty = self.first_empty or where
                    continue
                document = replace(document, title="", text=document.title)
            check_length(where, document.text)
            yield document

    def read_all(self) -> Iterator[tuple[str, Document]]:
        for path, name in self.files.items():
            is_table = file_extension(path) in TABLE_ENDINGS
            for where, document in self.read_rows(path, name) if is_table else self.read_file(path, name):
                if document.id in self.taken and path not in self.known:
                    raise BertJaxError(
                        f'{where} has the id "{document.id}" of a document from another source; name all sources of '
                        "the index in one command, or replace such documents with --replace"
                    )
                yield where, document

    def list_files(self, given: str) -> Iterator[tuple[str, str]]:
        """Yield the path of each file, and its name: in a given folder, the path in that folder."""
        is_folder = os.path.isdir(given)
        if is_folder and is_beir(given):
            yield str(Path(given, CORPUS)), CORPUS
            return
        for path in expand_inputs([given]):
            extension = file_extension(path)
            if extension in ENDINGS or (
                not extension and begins_with(path, document_formats.WIKIEXTRACTOR_START)
            ):
                name = os.path.relpath(path, given) if is_folder else Path(path).name
                yield path, replace_surrogates(name)
            elif is_folder:
                self.others[extension] = self.others.get(extension, 0) + 1
            else:
                raise BertJaxError(f"{path} is of an unknown kind; known: {', '.join(ENDINGS)}")

    def read_file(self, path: str, name: str) -> Iterator[tuple[str, Document]]:
        reader, number = LineReader(path, replace=True, longest=document_formats.LONGEST_FILE), 0
        try:
            for number, article in enumerate(document_formats.articles(path, reader), 1):
                is_whole = article.where == path
                id = article.id or (name if is_whole else f"{name}:{number}")
                yield article.where, Document(id, article.title, article.text)
        except NotTextError:
            if number:
                raise
            self.binary.append(path)
            return
        if reader.broken:
            self.broken.append(path)

    def read_rows(self, path: str, name: str) -> Iterator[tuple[str, Document]]:
        columns = None
        for where, row in self.read_table(path):
            try:
                columns = columns or self.choose_columns(where, row)
            except NoTextColumn:
                if path in self.inputs:
                    raise
                self.unknown.append(path)
                return
            number = where.rpartition(" ")[2]
            id = read_name_cell(where, row, columns.id) if columns.id else f"{name}:{number}"
            has_title = get_optional_cell(row, columns.title)
            title = get_text_cell(where, row, columns.title) if has_title else ""
            yield where, Document(id, title, get_text_cell(where, row, columns.text))

    def read_table(self, path: str) -> Iterator[tuple[str, tables.Row]]:
        if file_extension(path) not in (".jsonl", ".ndjson"):
            yield from tables.read_file_rows(path)
            return
        reader, mended = LineReader(path, replace=True), list[str]()
        yield from tables.json_rows(path, reader, lambda: mended.append(path))
        if reader.broken or mended:
            self.broken.append(path)

    def choose_columns(self, where: str, row: tables.Row) -> DocumentColumns:
        """Choose the columns of a table by its first row."""
        named = [name for name in (self.columns.text, self.columns.id, self.columns.title) if name]
        if missing := [
            name for name, column in zip(named, match_columns(where, row, named), strict=True) if not column
        ]:
            error = NoTextColumn if self.columns.text in missing else BertJaxError
            raise error(f"{where} has {no_columns(row, missing)}")

        def column(given: str, usual: Sequence[str]) -> str:
            return next(filter(None, match_columns(where, row, [given] if given else usual)), "")

        text = column(self.columns.text, DOCUMENT_TEXTS)
        if not text:
            known = ", ".join(name[:40] for name in row)
            raise NoTextColumn(
                f"{where}: which column holds the text? its columns: {known}; name it with --text"
            )
        return DocumentColumns(
            text, column(self.columns.id, DOCUMENT_IDS), column(self.columns.title, TITLES)
        )

    def notes(self) -> Iterator[str]:
        """Yield a line for each kind of document or file that was left out or repaired."""
        if self.empty:
            first = replace_surrogates(self.first_empty) + (" and others" if self.empty > 1 else "")
            yield one_line(f"{pluralize(self.empty, 'document')} without text left out ({first})")
        if self.others:
            extensions = ", ".join(
                f"{extension or 'no ending'} ({count:,})" for extension, count in sorted(self.others.items())
            )
            yield one_line(f"files of other kinds are left out: {extensions}")
        if self.unknown:
            yield (
                f"{name_first(self.unknown, 'table')} left out because the text column is unknown; name the file "
                "itself, with --text COLUMN"
            )
        if self.binary:
            yield f"{name_first(self.binary)} with NUL bytes left out: binary or UTF-16, not UTF-8 text"
        if self.broken:
            yield f"{name_first(self.broken, self.noun)} not entirely UTF-8; invalid characters are read as U+FFFD"


def name_first(names: Sequence[str], noun: str = "file") -> str:
    """
    >>> name_first(["a.txt", "b.txt", "c.txt"])
    '3 files (a.txt and others)'
    """
    return one_line(
        f"{pluralize(len(names), noun)} ({replace_surrogates(names[0])}{' and others' if len(names) > 1 else ''})"
    )


@dataclass
class MemoryDocuments(DocumentSource):
    """Documents that are not in files. A text without an id gets a number, counted from `first_number`."""

    noun: ClassVar[str] = "document"
    given: Iterable[MemoryDocument] = ()
    first_number: int = 0

    def __post_init__(self):
        self.inputs, self.files, self.found_in = [f"{MEMORY_PREFIX}documents"], {}, {}

    @property
    def name(self) -> str:
        return "documents"

    def read_all(self) -> Iterator[tuple[str, Document]]:
        for number, value in enumerate(self.given):
            where = f"documents[{number}]"
            read = self.read_one(where, number, value)
            document = Document(*map(replace_surrogates, (read.id, read.title, read.text)))
            if document != read:
                self.broken.append(where)
            yield where, document

    def read_one(self, where: str, number: int, value: Any) -> Document:
        if isinstance(value, str):
            if number == 0 and exists(value):
                raise BertJaxError(
                    f'{where} "{value}" is a file or a folder; give Path("{value}") to read it, or a dict with id and '
                    "text"
                )
            return Document(str(self.first_number + number), "", value)
        if isinstance(value, tuple) and len(value) == 2:
            value = dict(zip((ID, TEXT), value, strict=True))
        if not isinstance(value, Mapping):
            raise BertJaxError(
                f"{where} is {type_name(value)}; give a text, a pair (id, text), or a dict with id and text"
            )
        if other := next((key for key in value if not isinstance(key, str)), None):
            raise BertJaxError(f"{where} has the key {other!r:.60}; keys are strings: id, text, title")
        title = get_text_cell(where, value, TITLE) if get_optional_cell(value, TITLE) else ""
        return Document(read_name_cell(where, value, ID), title, get_text_cell(where, value, TEXT))


def open_documents(documents: Any, columns: DocumentColumns, first_number: int = 0) -> DocumentSource:
    """Return the source of documents in files or in memory; refuse anything else."""
    for name, column in vars(columns).items():
        if not isinstance(column, str):
            raise BertJaxError(f"{name} must be the name of a column, not {column!r:.60}")
    if isinstance(documents, str | PathLike):
        if not fspath(documents):
            raise BertJaxError(f'documents is ""; give {FORMS}')
        return DocumentSource([str(fspath(documents))], columns)
    if hasattr(documents, "columns"):
        raise BertJaxError(f"documents is {type_name(documents)}; give its rows, as a list of dicts")
    documents = to_plain_list(documents)
    if isinstance(documents, bytes | Mapping | Set) or not isinstance(documents, Iterable):
        raise BertJaxError(f"documents must be {FORMS}, not {documents!r:.60}")
    if isinstance(documents, list | tuple) and documents and isinstance(documents[0], PathLike):
        for number, path in enumerate(documents):
            if not isinstance(path, str | PathLike):
                raise BertJaxError(f"documents[{number}] is {type_name(path)}, and documents[0] is a path")
        return DocumentSource([str(fspath(path)) for path in documents], columns)
    if columns != DocumentColumns():
        raise BertJaxError("text, id and title name columns of tables in files; give them with paths alone")
    return MemoryDocuments((), given=documents, first_number=first_number)
