"""Documents in a program's memory, as `bert_jax.Index` takes them: texts, pairs (id, text), or dicts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from os import PathLike, fspath
from os.path import exists
from typing import Any, ClassVar

from bert_jax.core.errors import BertJaxError
from bert_jax.core.surrogates import replace_surrogates
from bert_jax.core.typed_json import type_name
from bert_jax.data.examples.cells import read_name_cell
from bert_jax.data.examples.column_names import DOCUMENT_TEXTS, ID, TITLES
from bert_jax.search.documents import Document, DocumentColumns, DocumentSource
from bert_jax.text.array_likes import to_plain_list
from bert_jax.text.input_files import MEMORY_PREFIX
from bert_jax.text.tables import get_optional_cell, get_text_cell

TITLE, TEXT = TITLES[0], DOCUMENT_TEXTS[0]
MemoryDocument = str | tuple[str | int, str] | Mapping[str, Any]
Documents = str | PathLike[str] | Sequence[PathLike[str]] | Iterable[MemoryDocument]
FORMS = "a path, or a list of paths, texts, pairs (id, text) or dicts with id and text"


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
        documents = [documents]
        if not fspath(documents[0]):
            raise BertJaxError(f'documents is ""; give {FORMS}')
        return DocumentSource([str(fspath(path)) for path in documents], columns)
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
