"""A segment, a part of an index that is written once: documents, their passages, and the data to find these. Its files
are memory-mapped, so that memory holds only what a search reads."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.growing_array import growing_array
from bert_jax.search import keywords, nearest
from bert_jax.search.content_keys import KEY, content_keys
from bert_jax.search.hnsw import HNSW_FILE, open_hnsw
from bert_jax.search.index_manifest import REBUILD_REMEDY, REMOVED, SEGMENTS, SegmentFacts
from bert_jax.search.keywords import Postings
from bert_jax.search.passages import CutDocument
from bert_jax.search.string_array import StringArray, growing_strings, string_files

WINDOW = 4096  # passages written at once
IDS, TITLES, TEXTS = "ids", "titles", "texts"
HASHES, KEYS, DOCUMENTS, SPANS, ORDER = "hashes.npy", "keys.npy", "documents.npy", "spans.npy", "order.npy"
# The hashes of these files are checked whenever an index is opened; the hashes of the others only on request.
CHECKED_FILES = (
    *string_files(IDS),
    *string_files(TITLES),
    HASHES,
    KEYS,
    DOCUMENTS,
    SPANS,
    ORDER,
    keywords.LENGTHS,
)


def search_text(title: str, text: str) -> str:
    """Return the text that represents a passage in a search: the title of its document, and its own text."""
    return f"{title} {text}" if title else text


class SearchTexts(Sequence[str]):
    """The texts that represent the passages of a segment in a search."""

    def __init__(self, folder: Path):
        self.titles, self.texts = open_strings(folder, TITLES), open_strings(folder, TEXTS)
        self.documents = map_array(folder / DOCUMENTS)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, which):
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(len(self)))]
        return search_text(self.titles[self.documents[which]], self.texts[which])


class Segment:
    """An open segment. All files are mapped at once, so it can still be searched after another process removes them."""

    def __init__(self, folder: Path, names: Collection[str], removed: np.ndarray | None = None):
        self.ids, self.titles, self.texts = (open_strings(folder, name) for name in (IDS, TITLES, TEXTS))
        self.documents, self.spans, self.order = (
            map_array(folder / name) for name in (DOCUMENTS, SPANS, ORDER)
        )
        self.hashes, self.keys = map_array(folder / HASHES), map_array(folder / KEYS)
        self.search_texts = SearchTexts(folder)
        self.removed = frozenset(() if removed is None else removed.tolist())
        self.live: np.ndarray | None = None  # which passages are not removed; None: all
        if removed is not None:
            is_live = np.ones(len(self.ids), bool)
            is_live[removed] = False
            self.live = is_live[self.documents]
        words = open_strings(folder, keywords.WORDS)
        self.postings = Postings(words, *(map_array(folder / name) for name in keywords.ARRAYS))
        self.vectors = np.empty((len(self.order), 0), np.float32)
        if nearest.VECTORS in names:
            self.vectors = map_array(folder / nearest.VECTORS)
        self.bits = map_array(folder / nearest.BITS) if nearest.BITS in names else None
        self.hnsw = open_hnsw(folder / HNSW_FILE) if HNSW_FILE in names else None

    def document_place(self, passage: int) -> tuple[str, int]:
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


def open_segment(directory: Path, facts: SegmentFacts) -> Segment:
    removed = map_array(directory / REMOVED / facts.removed.name) if facts.removed else None
    return Segment(directory / SEGMENTS / facts.name, facts.files.keys(), removed)


def map_array(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r").view(np.ndarray)  # slicing is faster than with a memmap
    except (ValueError, EOFError) as error:
        raise BertJaxError(f"{path} is damaged; {REBUILD_REMEDY}") from error


def open_strings(folder: Path, name: str) -> StringArray:
    content, starts = string_files(name)
    return StringArray(map_array(folder / content), map_array(folder / starts))


def write_documents(folder: Path, cuts: Iterable[CutDocument]) -> int:
    """Write all files except the vectors and the postings. Return the number of documents."""
    first = 0
    with (
        growing_strings(folder, IDS) as ids,
        growing_strings(folder, TITLES) as titles,
        growing_strings(folder, TEXTS) as texts,
        growing_array(folder / HASHES, KEY) as hashes,
        growing_array(folder / KEYS, KEY) as keys,
        growing_array(folder / DOCUMENTS, np.int32) as documents,
        growing_array(folder / SPANS, np.int64) as spans,
    ):
        for window in group_cuts(cuts):
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
    names, documents = open_strings(folder, IDS)[:], map_array(folder / DOCUMENTS)
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    order = np.empty(len(documents), np.int32)
    order[np.argsort(rank[documents], kind="stable")] = np.arange(len(documents))
    with growing_array(folder / ORDER, np.int32) as file:
        file.append(order)


def group_cuts(cuts: Iterable[CutDocument]) -> Iterator[list[CutDocument]]:
    window: list[CutDocument] = []
    passages = 0
    for cut in cuts:
        window.append(cut)
        passages += len(cut.texts)
        if passages >= WINDOW:
            yield window
            window, passages = [], 0
    if window:
        yield window
