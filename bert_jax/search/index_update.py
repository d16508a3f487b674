"""A change of an index in one step: read documents, encode and add the new ones, remove others, merge segments."""

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bert_jax.core.arguments import use_python_spelling
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.config import check_flag
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.output import explain_os_errors
from bert_jax.core.progress import format_duration, track
from bert_jax.core.surrogates import replace_surrogates
from bert_jax.core.terminal import pluralize
from bert_jax.search import index_manifest as manifests
from bert_jax.search.content_keys import KeyIndex, content_keys
from bert_jax.search.documents import Document, DocumentColumns, Documents, DocumentSource, open_documents
from bert_jax.search.index_manifest import IndexManifest, absolute_source
from bert_jax.search.index_settings import IndexOptions, IndexSettings
from bert_jax.search.index_writer import (
    DocumentChanges,
    UpdateCounts,
    document_places,
    open_writer,
    refuse_output,
)
from bert_jax.search.segment import Segment, read_current, search_text
from bert_jax.text.array_likes import to_plain_list
from bert_jax.text.truncation import TruncationCounter

if TYPE_CHECKING:
    from bert_jax.search.index import Index

SAMPLE = 256  # passages by which a dry run estimates


@dataclass(frozen=True)
class IndexUpdate:
    """What to change: the documents to add, the ids to remove, and whether to merge all segments."""

    source: DocumentSource | None = None
    remove: Collection[str] = ()
    remove_missing: bool = False  # remove the documents of the index that are not among those of `source`
    compact: bool = False
    replace: bool = False  # documents of a new source may replace those of another with their ids


@dataclass(frozen=True)
class UpdatedIndex:
    """An index after a change."""

    manifest: IndexManifest
    counts: UpdateCounts
    missing: list[str]  # ids of the documents of the index that were not read
    other_sources: list[str]  # the sources of the index that were not read
    only_adds: bool  # none of the sources that were read had been read before


def update_index(
    settings: IndexSettings,
    update: IndexUpdate,
    notify: Callable[[str], None],
) -> UpdatedIndex:
    """Change the index that `settings` names; build it if it is new. `notify` takes a line for each kind of document
    that was left out."""
    other_sources, only_adds, source = list[str](), False, update.source
    stored = settings.stored_vectors  # refused before anything is written
    with open_writer(settings.path, settings.manifest if source else None) as writer:
        if update.remove:
            writer.remove_documents(update.remove)
        if source:
            other_sources = writer.manifest.other_sources(source.inputs)
            only_adds = {*map(absolute_source, source.inputs)}.isdisjoint(writer.manifest.sources)
            refuse_other_sources(update, writer.manifest, writer.segments)
            writer.stored = stored
            encoder = settings.encoder
            if encoder:
                encoder.truncated = TruncationCounter(
                    encoder.truncated.max_length
                )  # counts this change alone
            documents = track(source.documents(), "documents", "reading")
            encode = encoder.encode_documents if encoder else None
            writer.add_documents(documents, settings.cutter, encode, source.inputs)
            if encoder and encoder.truncated.truncated:
                warn_caller(encoder.truncated.notice(what="passages"))
            for line in source.notes():
                notify(line)
            if not writer.counts.read and (source.files or not writer.manifest.changes):
                raise BertJaxError(f"{source.name}: no documents that can be read; name others")
            if update.remove_missing and writer.missing:
                writer.remove_documents(writer.missing)
        if update.compact:
            writer.compact(settings.manifest)
    return UpdatedIndex(writer.manifest, writer.counts, writer.missing, other_sources, only_adds)


def refuse_other_sources(update: IndexUpdate, manifest: IndexManifest, segments: Sequence[Segment]) -> None:
    """Raise if documents of sources that were not given would be removed; see to it that none is replaced."""
    source = update.source
    if source is None or not (others := manifest.other_sources(source.inputs)):
        return
    if update.remove_missing:
        raise BertJaxError(
            f"--remove-missing would also remove the documents of {', '.join(others)}; name all "
            "sources of the index, or remove documents by their ids with --remove"
        )
    if not update.replace:
        source.taken, source.known = document_places(segments), manifest.known_files(source.found_in)


def estimate_update(settings: IndexSettings, update: IndexUpdate) -> str:
    """Say what an update would add and remove, how long it would take, and how large it would be: all documents are
    read and cut, and a sample of their passages is indexed elsewhere."""
    source, manifest = update.source, settings.manifest
    assert source is not None  # there is nothing else to estimate
    refuse_output(settings.path)
    if settings.path.exists() and not settings.path.is_dir():
        raise BertJaxError(f"{settings.path} is not a directory; name another --output")
    segments = [] if settings.is_new else read_current(settings.path)[1]
    refuse_other_sources(update, manifest, segments)
    stored, counts, rng = settings.stored_vectors, UpdateCounts(), random.Random(0)
    changes = DocumentChanges(segments, counts)
    keys = KeyIndex([*(segment.keys for segment in segments), *(stored.keys if stored else [])])
    sample, passages, encoded, begun = list[Document](), 0, set[bytes](), time.monotonic()
    for cut in settings.cutter(changes.select(track(source.documents(), "documents", "reading"))):
        own = content_keys([search_text(cut.title, text) for text in cut.texts])
        encoded.update(own[keys.find(own) < 0].tolist())
        for text in cut.texts:
            place = passages if passages < SAMPLE else rng.randrange(passages + 1)
            if place < SAMPLE:  # each passage is drawn with the same probability
                sample[place : place + 1] = [Document(str(passages), cut.title, text)]
            passages += 1
    reading = time.monotonic() - begun
    seconds, size = index_sample(settings, sample) if sample else (0.0, 0)
    share = passages / max(len(sample), 1)
    work = seconds * (len(encoded) / max(len(sample), 1) if manifest.model else share)
    removed = f", {len(changes.missing):,} removed" if update.remove_missing else ""
    more = "; the HNSW index takes longer" if manifest.approximate else ""
    return (
        f"{counts.new:,} new, {counts.changed:,} changed, {counts.unchanged:,} unchanged{removed}; "
        f"{pluralize(passages, 'passage')} to add, {len(encoded) if manifest.model else 0:,} to encode; about "
        f"{format_duration(reading + work)} and {size * share / 1e6:,.1f} MB{more}; nothing was written to "
        f"{settings.path}"
    )


def index_sample(settings: IndexSettings, sample: Sequence[Document]) -> tuple[float, int]:
    """Return the seconds that an index of the sample takes, and its bytes; it stands where the real one will be."""
    new = replace(settings.manifest, segments=(), sources=(), changes=0)
    encoder, path = settings.encoder, settings.path.absolute()
    parent = next(folder for folder in path.parents if folder.exists())
    with explain_os_errors(path), TemporaryDirectory(prefix=".dry-run-", dir=parent) as folder:
        for name in ("compiled", "timed"):  # twice, because programs are compiled for the first
            begun = time.monotonic()
            with open_writer(Path(folder, name), new) as writer:
                writer.add_documents(sample, settings.cutter, encoder.encode_documents if encoder else None)
        return time.monotonic() - begun, sum(facts["bytes"] for _, facts in writer.manifest.files())


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
