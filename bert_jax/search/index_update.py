"""A change of an index in one step: its settings, given or those of the existing index; read documents, encode and add
the new ones, remove others, merge segments."""

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.output import explain_os_errors
from bert_jax.core.progress import format_duration, track
from bert_jax.core.terminal import pluralize
from bert_jax.search.cache import KeyIndex, content_keys
from bert_jax.search.candidates import import_faiss
from bert_jax.search.documents import Document, DocumentSource
from bert_jax.search.index_encoder import ENCODERS, IndexEncoder, IndexModel, directory_of, load_encoder
from bert_jax.search.index_manifest import (
    DENSE_ROWS,
    INDEX_FILE,
    MAX_PASSAGE_TOKENS,
    MODEL_SETTINGS,
    TOKEN_ROWS,
    IndexManifest,
    models_by_rows,
    read_index_manifest,
)
from bert_jax.search.index_writer import (
    DocumentChanges,
    Encode,
    IndexWriter,
    UpdateCounts,
    document_positions,
    open_writer,
    refuse_output,
)
from bert_jax.search.language import AUTO, LANGUAGES, NONE
from bert_jax.search.passages import PassageCutter, WordCounter
from bert_jax.search.segment import Segment, read_current, search_text
from bert_jax.search.stored_vectors import StoredVectors
from bert_jax.text.truncation import TruncationCounter

DEFAULT_PASSAGE_TOKENS = 256  # of a passage by default, or fewer if the model reads fewer
OVERLAP_DIVISOR = 8  # by default, one in OVERLAP_DIVISOR of a passage's tokens may be repeated in the next
CHANGEABLE = ("quantization", "approximate", "language")  # by --compact
SAMPLE = 256  # passages by which a dry run estimates


@dataclass(frozen=True)
class IndexOptions:
    """The settings that the user gave; None if not given."""

    model: IndexModel | None = None
    passage_tokens: int | None = None
    overlap: int | None = None
    quantization: str | None = None
    approximate: str | None = None
    language: str | None = None
    vectors: str | None = None  # a folder of vectors that were computed elsewhere
    sparse_model: IndexModel | None = None
    multi_vector_model: IndexModel | None = None
    pool_factor: float | None = None  # token vectors that are averaged to one

    def __post_init__(self):
        if self.quantization is not None:
            check_name(self.quantization, (NONE, "binary"), "quantize")
        if self.approximate is not None:
            check_name(self.approximate, (NONE, "hnsw"), "approximate")

    @property
    def models(self) -> dict[str, IndexModel]:
        """The models that were given, by the file of their rows."""
        return models_by_rows(self)


class IndexSettings:
    """The settings of an index, and its models, which are loaded only when they are needed."""

    def __init__(self, path: Path, options: IndexOptions, merging: bool = False):
        self.path, self.options = path, options
        if options.pool_factor is not None:
            check_number(options.pool_factor, "--pool-factor", allowed=Range(1))
        if options.language is not None:
            check_name(options.language, (AUTO, NONE, *LANGUAGES), "language")
        for model in options.models.values():
            if path.resolve().is_relative_to(directory_of(model)):
                raise BertJaxError(f"{path} is in the model's directory; name one elsewhere")
        existing = read_index_manifest(path) if (path / INDEX_FILE).exists() else None
        if existing is not None and not existing.changes:  # nothing was built with its settings
            paths: dict[str, Any] = {
                MODEL_SETTINGS[rows]: facts.path for rows, facts in existing.models.items()
            }
            given = {MODEL_SETTINGS[rows]: model for rows, model in options.models.items()}
            factor = existing.pool_factor if options.pool_factor is None else options.pool_factor
            self.options = replace(options, **paths | given, pool_factor=factor)
            existing = None
        self.is_new = existing is None
        self.manifest = self.new_manifest() if existing is None else self.existing_manifest(existing, merging)

    @cached_property
    def encoders(self) -> dict[str, IndexEncoder]:
        """The models, by the file of their rows."""
        given = self.options.models
        if self.is_new:
            pooled = {TOKEN_ROWS: self.options.pool_factor}
            return {name: ENCODERS[name](model, pooled.get(name)) for name, model in given.items()}
        return {
            name: load_encoder(ENCODERS[name], self.path, facts, given.get(name))
            for name, facts in self.manifest.models.items()
        }

    @property
    def encode(self) -> dict[str, Encode]:
        return {name: encoder.encode_documents for name, encoder in self.encoders.items()}

    @cached_property
    def stored_vectors(self) -> StoredVectors | None:
        """The vectors of --vectors, which are not computed again."""
        if self.options.vectors is None:
            return None
        encoder = self.encoders.get(DENSE_ROWS)
        if encoder is None:
            raise BertJaxError(
                "--vectors are those of a model; add --model DIR, with which they were computed"
            )
        return StoredVectors(self.options.vectors, encoder.facts, encoder.model.embedder)

    @property
    def cutter(self) -> PassageCutter:
        tokens, encoders = self.manifest.passage_tokens, list(self.encoders.values())
        if not encoders:
            return PassageCutter(WordCounter(), tokens, self.manifest.overlap)
        encoder = encoders[0]  # the other model truncates a passage that has more of its own tokens
        return PassageCutter(encoder.token_counter, encoder.passage_room(tokens), self.manifest.overlap)

    def new_manifest(self) -> IndexManifest:
        options, models = self.options, {name: encoder.facts for name, encoder in self.encoders.items()}
        model = models.get(DENSE_ROWS)
        most = min([MAX_PASSAGE_TOKENS, *(facts.max_length for facts in models.values())])
        tokens = (
            min(DEFAULT_PASSAGE_TOKENS, most) if options.passage_tokens is None else options.passage_tokens
        )
        check_number(tokens, "--passage-tokens", is_whole=True, allowed=Range(1, most))
        overlap = tokens // OVERLAP_DIVISOR if options.overlap is None else options.overlap
        check_number(overlap, "--overlap", is_whole=True, allowed=Range(0, tokens // 2))
        if model is None and (options.quantization or options.approximate):
            raise BertJaxError("--quantize and --approximate apply to vectors; add --model DIR")
        if options.pool_factor is not None and TOKEN_ROWS not in models:
            raise BertJaxError("--pool-factor applies to token vectors; add --multi-vector-model DIR")
        quantization, approximate = parse_none(options.quantization), parse_none(options.approximate)
        language = parse_none(options.language or AUTO)
        by_setting: dict[str, Any] = {name: models.get(rows) for rows, name in MODEL_SETTINGS.items()}
        return check_candidates(
            IndexManifest(
                passage_tokens=tokens, overlap=overlap, quantization=quantization, approximate=approximate,
                language=language, **by_setting,
            )
        )  # fmt: skip

    def existing_manifest(self, existing: IndexManifest, merging: bool) -> IndexManifest:
        """Return the settings of the index, with the changes that merging allows. Raise if others were given."""
        for name in self.options.models.keys() - existing.models.keys():
            flag = ENCODERS[name].flag
            raise BertJaxError(f"{self.path} was built without {flag}; leave {flag} out, or name a new index")
        if self.options.pool_factor not in (None, existing.pool_factor):
            raise BertJaxError(
                f"{self.path} was built with --pool-factor {existing.pool_factor or NONE}, not "
                f"{self.options.pool_factor:g}; name a new index"
            )
        given: dict[str, Any] = {
            name: parse_none(value)
            for name in ("passage_tokens", "overlap", *CHANGEABLE)
            if (value := getattr(self.options, name)) is not None and (merging or value != AUTO)
        }
        for name, value in given.items():
            if value == getattr(existing, name):
                continue
            if name not in CHANGEABLE:
                flag = f"--{name.replace('_', '-')}"
                raise BertJaxError(
                    f"{self.path} was built with {flag} {getattr(existing, name)}, not {value}; name a new index"
                )
            if not merging:
                raise BertJaxError(
                    f"{self.path} was built with {name} {getattr(existing, name) or NONE}, not {value or NONE}; add "
                    "--compact to this command to change that"
                )
        return check_candidates(replace(existing, **given))


def check_candidates(manifest: IndexManifest) -> IndexManifest:
    if manifest.quantization and manifest.approximate:
        raise BertJaxError(
            "--quantize and --approximate both choose the candidates to rescore; set one of them to none"
        )
    if manifest.approximate:
        import_faiss()  # raises if faiss is missing, before anything is built
    return manifest


def parse_none(value: str | None) -> str | None:
    return None if value == NONE else value


@dataclass(frozen=True)
class IndexUpdate:
    """What to change: the documents to add, the ids to remove, and whether to merge all segments."""

    source: DocumentSource | None = None
    remove: Collection[str] = ()
    remove_missing: bool = False  # remove the documents of the index that are not among those of `source`
    compact: bool = False
    replace: bool = False  # documents of a new source may replace those of another with their ids


def update_index(settings: IndexSettings, update: IndexUpdate, notify: Callable[[str], None]) -> IndexWriter:
    """Change the index that `settings` names; build it if it is new. Return the writer, which holds what has changed.
    `notify` takes a line for each kind of document that was left out."""
    source, stored = update.source, settings.stored_vectors  # refused before anything is written
    with open_writer(settings.path, settings.manifest if source else None) as writer:
        if update.remove:
            writer.remove_documents(update.remove)
        if source:
            refuse_other_sources(update, writer.manifest, writer.segments)
            writer.stored = stored
            for encoder in settings.encoders.values():  # they count this change alone
                encoder.truncated = TruncationCounter(encoder.truncated.max_length)
            documents = track(source.documents(), "documents", "reading")
            writer.add_documents(documents, settings.cutter, settings.encode, source.inputs)
            for encoder in settings.encoders.values():
                if encoder.truncated.truncated:
                    warn_caller(encoder.truncated.notice(what="passages"))
            for line in source.notes():
                notify(line)
            if not writer.counts.read and (source.files or not writer.manifest.changes):
                raise BertJaxError(f"{source.name}: no documents that can be read; name others")
            if update.remove_missing and writer.missing:
                writer.remove_documents(writer.missing)
        if update.compact:
            writer.compact(settings.manifest)
    return writer


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
        source.taken, source.known = document_positions(segments), manifest.known_files(source.found_in)


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
            position = passages if passages < SAMPLE else rng.randrange(passages + 1)
            if position < SAMPLE:  # each passage is drawn with the same probability
                sample[position : position + 1] = [Document(str(passages), cut.title, text)]
            passages += 1
    reading = time.monotonic() - begun
    seconds, size = index_sample(settings, sample) if sample else (0.0, 0)
    share = passages / max(len(sample), 1)
    work = seconds * (len(encoded) / max(len(sample), 1) if manifest.models else share)
    removed = f", {len(changes.missing):,} removed" if update.remove_missing else ""
    more = "; the HNSW index takes longer" if manifest.approximate else ""
    return (
        f"{counts.new:,} new, {counts.changed:,} changed, {counts.unchanged:,} unchanged{removed}; "
        f"{pluralize(passages, 'passage')} to add, {len(encoded) if manifest.models else 0:,} to encode; about "
        f"{format_duration(reading + work)} and {size * share / 1e6:,.1f} MB{more}; nothing was written to "
        f"{settings.path}"
    )


def index_sample(settings: IndexSettings, sample: Sequence[Document]) -> tuple[float, int]:
    """Return the seconds that an index of the sample takes, and its bytes; it stands where the real one will be."""
    new = replace(settings.manifest, segments=(), sources=(), changes=0)
    path = settings.path.absolute()
    parent = next(folder for folder in path.parents if folder.exists())
    with explain_os_errors(path), TemporaryDirectory(prefix=".dry-run-", dir=parent) as folder:
        for name in ("compiled", "timed"):  # twice, because programs are compiled for the first
            begun = time.monotonic()
            with open_writer(Path(folder, name), new) as writer:
                writer.add_documents(sample, settings.cutter, settings.encode)
        return time.monotonic() - begun, sum(facts["bytes"] for _, facts in writer.manifest.files())
