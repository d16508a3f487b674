"""The changes of an index that a program makes: `Index.build`, `Index.add` and `Index.remove`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.core.arguments import use_python_spelling
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.config import check_flag
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.surrogates import replace_surrogates
from bert_jax.search import index_manifest as manifests
from bert_jax.search.documents import DocumentColumns
from bert_jax.search.index_settings import IndexOptions, IndexSettings
from bert_jax.search.index_update import IndexUpdate, update_index
from bert_jax.search.index_writer import UpdateCounts
from bert_jax.search.memory_documents import Documents, open_documents
from bert_jax.text.array_likes import to_plain_list

if TYPE_CHECKING:
    from bert_jax.search.index import Index


def build_index(path: Path, options: IndexOptions, documents: Documents, columns: DocumentColumns) -> None:
    for name, value, known in (
        ("quantize", options.quantization, ("none", "binary")),
        ("approximate", options.approximate, ("none", "hnsw")),
    ):
        if value is not None:
            check_name(value, known, name)
    with use_python_spelling():
        if (path / manifests.INDEX_FILE).exists() and manifests.read_index_manifest(path).changes:
            raise BertJaxError(
                f'{path} is an index already; bert_jax.Index.open("{path}").add(...) adds to it'
            )
        source = open_documents(documents, columns)
        update_index(IndexSettings(path, options), IndexUpdate(source), warn_caller)


def add_documents(
    index: "Index", documents: Documents, columns: DocumentColumns, replace: bool
) -> UpdateCounts:
    check_flag(replace, "replace")
    with use_python_spelling():
        index.refresh()
        source = open_documents(documents, columns, next_number(index))
        settings = open_settings(index)
        settings.encoder = index.encoder if settings.manifest.model else None  # loaded once for many changes
        counts = update_index(settings, IndexUpdate(source, replace=replace), warn_caller).counts
        index.refresh()
    return counts


def remove_documents(index: "Index", ids: str | Iterable[str]) -> UpdateCounts:
    listed = [ids] if isinstance(ids, str) else to_plain_list(ids)
    if isinstance(listed, bytes | Mapping) or not isinstance(listed, Iterable):
        raise BertJaxError(f"ids must be the id of a document or a list of ids, not {ids!r:.60}")
    listed = list(listed)
    for number, name in enumerate(listed):
        if not isinstance(name, str):
            raise BertJaxError(f"ids[{number}] must be the id of a document, a string, not {name!r:.60}")
    names = list(dict.fromkeys(map(replace_surrogates, listed)))
    with use_python_spelling():
        counts = update_index(open_settings(index), IndexUpdate(remove=names), warn_caller).counts
        index.refresh()
    return counts


def open_settings(index: "Index") -> IndexSettings:
    return IndexSettings(index.path, IndexOptions(index.model))


def next_number(index: "Index") -> int:
    """Return the number of the next text without an id: one above all ids that are numbers."""
    ids = (segment.ids[number] for segment in index.segments for number in segment.live_documents())
    return max((int(name) + 1 for name in ids if name.isascii() and name.isdigit()), default=0)
