"""Change an index: add, replace and remove documents, and merge segments. A change takes effect completely, when the
new index.json is written, or not at all. Only one process at a time can change an index."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.core.hashes import FileFacts, collect_file_facts, find_damaged_files
from bert_jax.core.output import locked_directory, refuse_unlisted, remove_path
from bert_jax.data.npy_writer import npy_writer
from bert_jax.search import candidates, keywords, nearest
from bert_jax.search import index_manifest as manifests
from bert_jax.search.cache import KEY, KeyIndex, RowCache
from bert_jax.search.documents import Document
from bert_jax.search.index_manifest import (
    BUILDING,
    DENSE_ROWS,
    INDEX_FILE,
    REMOVED,
    SEGMENTS,
    IndexManifest,
    RemovedDocuments,
    SegmentFacts,
)
from bert_jax.search.language import AUTO, detect_language
from bert_jax.search.passages import CutDocument, PassageCutter
from bert_jax.search.ragged_rows import RaggedRows
from bert_jax.search.row_files import RowFiles, row_files
from bert_jax.search.segment import KEYS, SearchTexts, Segment, open_segment, read_current, write_documents
from bert_jax.search.segment_files import REBUILD_REMEDY, SegmentFiles
from bert_jax.search.stored_vectors import StoredRows, StoredVectors

# What may stand in SEGMENTS and REMOVED: a segment, removed documents, and these while they are being written.
OWN_NAMES = re.compile(r"\d{6,}(-\d{6,}\.npy)?|\.\d{6,}-\d{6,}\.npy\.[a-z0-9_]{8}\.partial")
# The folders in BUILDING: a segment that is not complete yet, and the vectors of its passages.
STAGE, CACHED = "segment", "passages"
ROWS = 4096  # vectors copied at once

Encode = Callable[[list[str]], np.ndarray]  # texts -> their rows [N, ...]
Encoders = Mapping[str, Encode]  # by the file of the rows


@dataclass
class UpdateCounts:
    """The numbers of documents, and of the passages that were `encoded` or whose vectors were `stored` elsewhere."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    encoded: int = 0
    stored: int = field(default=0, repr=False)

    @property
    def read(self) -> int:
        return self.new + self.changed + self.unchanged


@contextmanager
def open_writer(directory: Path, new: IndexManifest | None = None) -> "Iterator[IndexWriter]":
    """Lock an index and yield its writer. If the index does not exist, or nothing was ever added to it, write the
    manifest `new`; without `new` it must exist."""
    if new is None:
        manifests.read_index_manifest(directory)
    refuse_output(directory)
    with locked_directory(directory):
        if new is not None and not manifests.is_built(directory):
            manifests.write_index_manifest(directory, new)
        writer = IndexWriter(directory)
        writer.remove_unlisted_files()
        try:
            yield writer
        except Exception:
            if not writer.manifest.changes:
                remove_if_empty(directory)
            raise
        writer.remove_unlisted_files()
        remove_building(directory)


def refuse_output(directory: Path) -> None:
    """Raise if a directory holds something else, or if a folder of the index is a symbolic link: what is replaced by a
    change is removed, and behind a link that may be the files of another index."""
    refuse_unlisted(directory, INDEX_FILE)
    for name in (SEGMENTS, REMOVED, BUILDING):
        if (directory / name).is_symlink():
            raise BertJaxError(
                f"{directory / name} is a symbolic link, so the index is not changed; put the folder itself there"
            )


def remove_building(directory: Path) -> None:
    building = directory / BUILDING
    for path in (building / STAGE, *building.glob(f"{CACHED}-*")):
        remove_path(path)
    with suppress(OSError):  # it also holds files that are not ours
        building.rmdir()


def remove_if_empty(directory: Path) -> None:
    """Remove an index that holds nothing yet. Keep it if vectors were computed, which the next attempt reuses."""
    building = directory / BUILDING
    remove_path(building / STAGE)
    if not any(path.is_file() for path in building.rglob("*")):
        remove_building(directory)
        (directory / INDEX_FILE).unlink(missing_ok=True)
        with suppress(OSError):  # the directory holds other files
            directory.rmdir()


def document_positions(segments: Sequence[Segment]) -> dict[str, tuple[int, int]]:
    """Map the id of each document to the index of its segment, and its number in the segment."""
    return {
        segment.ids[number]: (position, number)
        for position, segment in enumerate(segments)
        for number in segment.live_documents()
    }


class DocumentChanges:
    """Selects the documents that are not in these segments as they are, and counts all."""

    def __init__(self, segments: Sequence[Segment], counts: UpdateCounts):
        self.segments, self.counts, self.positions = segments, counts, document_positions(segments)
        self.seen: set[str] = set()  # ids of documents that the segments have
        self.replaced: set[tuple[int, int]] = set()

    def select(self, documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            position = self.positions.get(document.id)
            if position is None:
                self.counts.new += 1
                yield document
                continue
            self.seen.add(document.id)
            if self.segments[position[0]].hashes[position[1]] == document.hash.rstrip(b"\0"):
                self.counts.unchanged += 1
            else:
                self.counts.changed += 1
                self.replaced.add(position)
                yield document

    @property
    def missing(self) -> list[str]:
        """The ids of documents that the segments have but that were not among those selected from."""
        return sorted(self.positions.keys() - self.seen)


class IndexWriter:
    """Make changes to an index; `manifest` and `segments` hold its current state."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.manifest, self.segments = read_current(directory)
        self.counts = UpdateCounts()
        self.stored: StoredVectors | None = None  # vectors that need not be computed
        self.missing: list[str] = []  # ids of the documents that were in the index but not in the last `add`

    def remove_unlisted_files(self) -> None:
        """Remove the files of an index that index.json does not name: left by a killed process, or replaced by a
        change."""
        named = {Path(name).parts[:2] for name, _ in self.manifest.files()}
        for folder in (SEGMENTS, REMOVED):
            for path in (self.directory / folder).glob("*"):
                if OWN_NAMES.fullmatch(path.name) and (folder, path.name) not in named:
                    remove_path(path)
        remove_path(self.directory / BUILDING / STAGE)

    def add_documents(
        self,
        documents: Iterable[Document],
        cutter: PassageCutter,
        encoders: Encoders,
        sources: Sequence[str] = (),
    ) -> None:
        """Add the documents that are new or have changed, and `sources` to those in the manifest if they have any."""
        changes = DocumentChanges(self.segments, self.counts)
        built = self.build_segment(cutter(changes.select(documents)), encoders)
        self.missing = changes.missing
        with_sources = self.manifest.with_sources(sources)
        if built is not None or (changes.seen and with_sources != self.manifest):
            self.manifest = with_sources
            self.commit([*self.mark_removed(changes.replaced), *([built] if built else [])])

    def remove_documents(self, ids: Collection[str]) -> None:
        positions = document_positions(self.segments)
        if missing := [name for name in ids if name not in positions]:
            hint = suggest_name(missing[0], positions, "it has", most=3)
            listing = f"`bert-jax info {self.directory} --ids` lists all"
            raise BertJaxError(f'{self.directory} has no document "{missing[0]}"; {hint}; {listing}')
        removed = {positions[name] for name in ids}
        self.counts.removed += len(removed)
        named = set(ids)
        self.missing = [name for name in self.missing if name not in named]
        self.commit(self.mark_removed(removed))

    def compact(self, manifest: IndexManifest) -> None:
        """Merge all segments into one without computing vectors, and take over the search settings of `manifest`."""
        self.refuse_damage(dict(self.manifest.files()))
        self.manifest = replace(
            self.manifest, quantization=manifest.quantization, approximate=manifest.approximate, recall=None,
            language=manifest.language,
        )  # fmt: skip
        built = self.build_segment((cut for segment in self.segments for cut in segment.cut_documents()), {})
        self.commit([] if built is None else [built])

    def refuse_damage(self, files: Mapping[str, FileFacts]) -> None:
        """Raise if files that are to be copied are damaged: the copies would get hashes that match."""
        for damage in find_damaged_files(self.directory, files):
            raise BertJaxError(f"{self.directory}: {damage}; {REBUILD_REMEDY}")

    def mark_removed(self, removed: Collection[tuple[int, int]]) -> list[SegmentFacts]:
        """Mark documents as removed. Return the segments that still have documents."""
        kept = []
        for position, (facts, segment) in enumerate(zip(self.manifest.segments, self.segments, strict=True)):
            numbers = segment.removed | {number for other, number in removed if other == position}
            if len(numbers) == facts.documents:
                continue
            if len(numbers) > len(segment.removed):
                folder, name = self.directory / REMOVED, f"{facts.name}-{self.manifest.changes + 1:06}.npy"
                with npy_writer(folder / name, np.int64) as file:
                    file.append(np.array(sorted(numbers)))
                passages = int(np.isin(segment.documents, list(numbers)).sum())
                written = collect_file_facts(folder, [name])[name]
                facts = replace(facts, removed=RemovedDocuments(name, len(numbers), passages, written))
            kept.append(facts)
        return kept

    def build_segment(self, cuts: Iterable[CutDocument], encoders: Encoders) -> SegmentFacts | None:
        """Write a segment of these documents, under its final name. Return None if there are no documents."""
        stage = self.directory / BUILDING / STAGE
        stage.mkdir(parents=True)
        documents = write_documents(stage, cuts)
        if not documents:
            remove_path(stage)
            return None
        texts = SearchTexts(stage)
        for row_file in row_files(self.manifest.models):
            self.write_rows(stage, row_file, texts, encoders.get(row_file.name))
            row_file.derive(stage)
        if self.manifest.language == AUTO:
            self.manifest = replace(self.manifest, language=detect_language(texts))
        keywords.build_postings(stage, texts, self.manifest.language)
        if self.manifest.model and not self.manifest.exact and len(texts) >= nearest.MIN_PASSAGES:
            vectors = SegmentFiles(stage).array(
                DENSE_ROWS, np.float32, len(texts), self.manifest.model.dimensions
            )
            if self.manifest.quantization:
                candidates.write_bits(stage, vectors)
            if self.manifest.approximate:
                candidates.write_hnsw(stage, vectors)
        names = sorted(os.listdir(stage))
        name = f"{self.manifest.changes + 1:06}"
        (self.directory / SEGMENTS).mkdir(exist_ok=True)
        stage.rename(self.directory / SEGMENTS / name)
        files = collect_file_facts(self.directory / SEGMENTS / name, names)
        return SegmentFacts(name, documents, len(texts), files)

    def write_rows(self, stage: Path, row_file: RowFiles, texts: SearchTexts, encode: Encode | None) -> None:
        """Write the rows of a model, computing each only once: those in the index or stored elsewhere are copied, and
        those that a killed process computed come from the cache that it filled."""
        tables = [segment.keys for segment in self.segments]
        stored = self.stored if row_file.name == DENSE_ROWS else None
        key_index = KeyIndex([*tables, *(stored.keys if stored else [])])
        positions = key_index.find(SegmentFiles(stage).array(KEYS, KEY, len(texts)))
        unknown = np.flatnonzero(positions < 0)
        # Stored vectors come after those of the segments, and are checked when they are opened.
        used = np.unique(np.searchsorted(key_index.starts, positions[positions >= 0], side="right") - 1)
        copied = [self.manifest.segments[number] for number in used if number < len(tables)]
        self.refuse_damage(
            {
                f"{SEGMENTS}/{facts.name}/{name}": facts.files[name]
                for facts in copied
                for name in row_file.names
            }
        )
        if stored:
            self.counts.stored = int((positions >= key_index.starts[len(tables)]).sum())
            if len(unknown) == len(positions):
                raise BertJaxError(
                    f"no passage has a vector in {stored.folder}; embed their texts, with their titles in front, "
                    "or leave --vectors out"
                )
        rows = None
        if encode and len(unknown):
            cache, encoded = RowCache(self.directory / BUILDING, CACHED, asdict(row_file.model)), 0

            def count_and_encode(some: list[str]) -> np.ndarray:
                nonlocal encoded
                encoded += len(some)
                return encode(some)

            rows = cache.get_or_compute(SelectedTexts(texts, unknown), count_and_encode)
            self.counts.encoded = max(self.counts.encoded, encoded)

        def rows_of(number: int) -> np.ndarray | RaggedRows | StoredRows:
            if number < len(self.segments):
                return self.segments[number].rows[row_file.name]
            assert stored is not None
            return stored.rows(number - len(self.segments))

        with row_file.writer(stage) as append:
            for start in range(0, len(positions), ROWS):
                block_positions = positions[start : start + ROWS]
                block = row_file.empty_block(len(block_positions))
                if rows is not None:
                    between = slice(*np.searchsorted(unknown, (start, start + len(block_positions))))
                    block[block_positions < 0] = rows[between]
                if (has_row := block_positions >= 0).any():
                    block[has_row] = key_index.rows(block_positions[has_row], rows_of)
                append(block)

    def commit(self, segments: Sequence[SegmentFacts]) -> None:
        changes = self.manifest.changes + 1
        self.manifest = replace(self.manifest, segments=tuple(segments), changes=changes)
        self.segments = [open_segment(self.directory, facts, self.manifest.models) for facts in segments]
        if not self.manifest.exact:
            self.manifest = replace(self.manifest, recall=nearest.measure_recall(self.segments))
        manifests.write_index_manifest(self.directory, self.manifest)


class SelectedTexts(Sequence[str]):
    """A selection of texts, each read only when it is used."""

    def __init__(self, texts: Sequence[str], which: np.ndarray):
        self.texts, self.which = texts, which

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, position):
        return self.texts[self.which[position]]
