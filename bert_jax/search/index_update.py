"""A change of an index in one step: read documents, encode and add the new ones, remove others, merge segments."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import track
from bert_jax.search.documents import DocumentSource
from bert_jax.search.index_manifest import IndexManifest
from bert_jax.search.index_settings import IndexSettings
from bert_jax.search.index_writer import IndexWriter, UpdateCounts, open_writer
from bert_jax.text.truncation import TruncationCounter


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
            if other_sources and update.remove_missing:
                raise BertJaxError(
                    f"--remove-missing would also remove the documents of {', '.join(other_sources)}; name all "
                    "sources of the index, or remove documents by their ids with --remove"
                )
            if other_sources and not update.replace:
                source.taken = writer.document_places()
                source.known = writer.manifest.known_files(source.found_in)
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
