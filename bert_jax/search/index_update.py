"""A change of an index in one step: read documents, encode and add the new ones, remove others, merge segments."""

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import explain_os_errors
from bert_jax.core.progress import format_duration, track
from bert_jax.core.terminal import pluralize
from bert_jax.search.content_keys import KeyIndex, content_keys
from bert_jax.search.documents import Document, DocumentSource
from bert_jax.search.index import read_current
from bert_jax.search.index_manifest import IndexManifest
from bert_jax.search.index_settings import IndexSettings
from bert_jax.search.index_writer import (
    DocumentChanges,
    IndexWriter,
    UpdateCounts,
    document_places,
    open_writer,
    refuse_output,
)
from bert_jax.search.segment import Segment, search_text
from bert_jax.text.truncation import TruncationCounter

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
            only_adds = writer.manifest.lacks_all(source.inputs)
            refuse_other_sources(update, writer.manifest, writer.segments)
            writer.stored = stored
            add_documents(writer, settings, source)
            warn_of_truncation(settings)
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


def add_documents(writer: IndexWriter, settings: IndexSettings, source: DocumentSource) -> None:
    encoder = settings.encoder
    if encoder:
        encoder.truncated = TruncationCounter(encoder.truncated.max_length)  # counts this change alone
    encode = encoder.encode_documents if encoder else None
    documents = track(source.documents(), "documents", "reading")
    writer.add_documents(documents, settings.cutter, encode, source.inputs)


def warn_of_truncation(settings: IndexSettings) -> None:
    encoder = settings.encoder
    if encoder and encoder.truncated.truncated:
        warn_caller(encoder.truncated.notice(what="passages"))
