"""A segment, a part of an index that is written once: documents, their passages, and the data to find these."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bert_jax.core.grouping import group_by_size
from bert_jax.core.hashes import FileFacts, describe_mismatch, find_damaged_files
from bert_jax.data.npy_writer import npy_writer
from bert_jax.search import candidates, fixed_encodings, keywords, segment_files, sparse
from bert_jax.search.cache import KEY, content_keys
from bert_jax.search.index_manifest import (
    DENSE_ROWS,
    INDEX_FILE,
    REMOVED,
    SEGMENTS,
    SPARSE_ROWS,
    TOKEN_ROWS,
    IndexedModel,
    IndexManifest,
    SegmentFacts,
    read_index_manifest,
)
from bert_jax.search.passages import CutDocument
from bert_jax.search.postings import Postings
from bert_jax.search.row_files import row_files
from bert_jax.search.segment_files import (
    REBUILD_REMEDY,
    DamagedFileError,
    SegmentFiles,
    is_ascending,
    string_files,
    text_writer,
)

WINDOW = 4096  # passages written at once
IDS, TITLES, TEXTS = "ids", "titles", "texts"
HASHES, KEYS, DOCUMENTS, SPANS, ORDER = "hashes.npy", "keys.npy", "documents.npy", "spans.npy", "order.npy"
# What every segment has. It also has the rows of each model and what is made of them; one with vectors has perhaps
# CANDIDATES, files to find candidates.
FILES = {HASHES, KEYS, DOCUMENTS, SPANS, ORDER, keywords.LENGTHS, *keywords.FILES.names}.union(
    *map(string_files, (IDS, TITLES, TEXTS, keywords.WORDS))
)
CANDIDATES = {candidates.BITS, candidates.HNSW_FILE}
LARGE_FILES = {
    string_files(TEXTS)[0], *keywords.FILES.names[1:], DENSE_ROWS, SPARSE_ROWS, *sparse.POSTINGS.names[1:],
    *CANDIDATES, TOKEN_ROWS, fixed_encodings.FILE,
}  # fmt: skip


def is_always_hashed(name: str, facts: FileFacts) -> bool:
    """Whether the hash of a file is checked whenever its index is opened. It is not if hashing it would take long."""
    return facts["bytes"] <= segment_files.SMALL or Path(name).name not in LARGE_FILES


def search_text(title: str, text: str) -> str:
    """Return the text that represents a passage in a search: the title of its document, and its own text."""
    return f"{title} {text}" if title else text


class SearchTexts(Sequence[str]):
    """The texts that represent the passages of a folder in a search."""

    def __init__(self, folder: Path):
        files = SegmentFiles(folder)
        self.titles, self.texts = files.texts(TITLES), files.texts(TEXTS)
        self.documents = files.array(DOCUMENTS, np.int32, None)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, which):
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(len(self)))]
        return search_text(self.titles[self.documents[which]], self.texts[which])


class Segment:
    """An open segment. All files are open at once, so it can still be searched after another process removes them."""

    def __init__(
        self,
        folder: Path,
        facts: SegmentFacts,
        models: Mapping[str, IndexedModel],
        removed: np.ndarray | None = None,
    ):
        """`models` are those whose rows it has, by the file of these; `removed` are the numbers of documents."""
        documents, passages = facts.documents, facts.passages
        self.files = files = SegmentFiles(folder)
        self.ids, self.titles = (files.texts(name, documents) for name in (IDS, TITLES))
        self.texts = files.texts(TEXTS, passages)
        self.hashes = files.array(HASHES, KEY, documents)
        self.keys = files.array(KEYS, KEY, passages)
        self.documents, self.order = (files.array(name, np.int32, passages) for name in (DOCUMENTS, ORDER))
        self.spans = files.array(SPANS, np.int64, passages, 2)
        if not is_ascending(self.documents, 0, documents - 1):
            raise files.damage_error(DOCUMENTS)
        self.removed = frozenset(() if removed is None else removed.tolist())
        self.live: np.ndarray | None = None  # which passages are not removed; None: all
        if removed is not None:
            is_live = np.ones(documents, bool)
            is_live[removed] = False
            self.live = is_live[self.documents]
        self.postings = keywords.open_postings(files, passages)
        self.rows = {row_file.name: row_file.open(files, passages) for row_file in row_files(models)}
        self.vectors: np.ndarray = self.rows.get(DENSE_ROWS, np.empty((passages, 0), np.float32))
        dimensions = self.vectors.shape[1]
        self.sparse: Postings | None = None
        if SPARSE_ROWS in models:
            self.sparse = Postings.open(files, sparse.POSTINGS, models[SPARSE_ROWS].dimensions, passages)
        self.bits: np.ndarray | None = None
        if candidates.BITS in facts.files:
            self.bits = files.array(candidates.BITS, np.uint8, passages, -(-dimensions // 8))
        self.hnsw = None
        if candidates.HNSW_FILE in facts.files:
            self.hnsw = candidates.open_hnsw(files, passages, dimensions)
        self.encodings = np.empty((passages, 0), np.uint8)
        if TOKEN_ROWS in models:
            self.encodings = files.array(fixed_encodings.FILE, np.uint8, passages, fixed_encodings.SIZE // 8)

    def read_passage(self, number: int) -> tuple[str, str]:
        """Return the title and the text of a passage. Raise if they are not those that were written: the hashes of
        large files are not checked when an index is opened."""
        title, text = self.titles[self.documents[number]], self.texts[number]
        if content_keys([search_text(title, text)])[0] != self.keys[number]:
            raise self.files.damage_error(self.texts.name)
        return title, text

    def search_text(self, number: int) -> str:
        """Return what `read_passage` does as one text, which models read."""
        return search_text(*self.read_passage(number))

    def document_position(self, passage: int) -> tuple[str, int]:
        """Return the id of a passage's document, and its start there: the order of passages with equal scores."""
        return self.ids[self.documents[passage]], int(self.spans[passage, 0])

    def live_documents(self) -> Iterator[int]:
        """Return the numbers of the documents that are not removed."""
        return (number for number in range(len(self.ids)) if number not in self.removed)

    def cut_documents(self) -> Iterator[CutDocument]:
        """Yield the documents that are not removed, as `write_documents` got them."""
        ends = np.searchsorted(self.documents, np.arange(len(self.ids) + 1))
        for number in self.live_documents():
            rows = slice(ends[number], ends[number + 1])
            spans = [(start, end) for start, end in self.spans[rows].tolist()]
            yield CutDocument(
                self.ids[number], self.titles[number], self.hashes[number], spans, self.texts[rows]
            )


def open_segment(directory: Path, facts: SegmentFacts, models: Mapping[str, IndexedModel]) -> Segment:
    """Open a segment of an index; `models` are those whose rows it has, by the file of these."""
    required = FILES.union(*((*row_file.names, *row_file.derived) for row_file in row_files(models)))
    if not required <= facts.files.keys() <= required | (CANDIDATES if DENSE_ROWS in models else set()):
        raise DamagedFileError(
            f"{directory / INDEX_FILE} is damaged: the files of segment {facts.name} are not those of a segment; "
            f"{REBUILD_REMEDY}"
        )
    removed = None
    if facts.removed:
        files, name = SegmentFiles(directory / REMOVED), facts.removed.name
        removed = files.array(name, np.int64, facts.removed.documents)
        if not is_ascending(removed, 0, facts.documents - 1):
            raise files.damage_error(name)
    return Segment(directory / SEGMENTS / facts.name, facts, models, removed)


def read_current(path: Path, verify: bool = False) -> tuple[IndexManifest, list[Segment]]:
    """Return index.json and its segments, with their files mapped. If another process changes the index and removes
    files meanwhile, start again with the new index.json."""
    manifest = read_index_manifest(path)
    files = dict(manifest.files())
    checked = {name: facts for name, facts in files.items() if verify or is_always_hashed(name, facts)}
    try:
        damage = next(find_damaged_files(path, checked), None) or next(
            filter(None, (describe_mismatch(path, name, facts["bytes"]) for name, facts in files.items())),
            None,
        )
        if damage is None:
            return manifest, [open_segment(path, facts, manifest.models) for facts in manifest.segments]
    except FileNotFoundError as error:
        damage = f"it lacks its file {error.filename}"
    if read_index_manifest(path).changes != manifest.changes:
        return read_current(path, verify)
    raise DamagedFileError(f"{path}: {damage}; {REBUILD_REMEDY}")


def write_documents(folder: Path, cuts: Iterable[CutDocument]) -> int:
    """Write all files except the vectors and the postings. Return the number of documents."""
    first = 0
    with (
        text_writer(folder, IDS) as ids,
        text_writer(folder, TITLES) as titles,
        text_writer(folder, TEXTS) as texts,
        npy_writer(folder / HASHES, KEY) as hashes,
        npy_writer(folder / KEYS, KEY) as keys,
        npy_writer(folder / DOCUMENTS, np.int32) as documents,
        npy_writer(folder / SPANS, np.int64) as spans,
    ):
        for window in group_by_size(cuts, WINDOW, lambda cut: len(cut.texts)):
            ids.append([cut.id for cut in window])
            titles.append([cut.title for cut in window])
            hashes.append(np.array([cut.hash for cut in window], KEY))
            texts.append([text for cut in window for text in cut.texts])
            keys.append(content_keys([search_text(cut.title, text) for cut in window for text in cut.texts]))
            counts = [len(cut.spans) for cut in window]
            documents.append(np.arange(first, first + len(window)).repeat(counts))
            spans.append(np.array([span for cut in window for span in cut.spans]))
            first += len(window)
    write_order(folder)
    return first


def write_order(folder: Path) -> None:
    """Write the rank of each passage when they are sorted by the ids of their documents."""
    files = SegmentFiles(folder)
    names, documents = files.texts(IDS)[:], files.array(DOCUMENTS, np.int32, None)
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    order = np.empty(len(documents), np.int32)
    order[np.argsort(rank[documents], kind="stable")] = np.arange(len(documents))
    with npy_writer(folder / ORDER, np.int32) as file:
        file.append(order)
