"""Export all passages of an index to files for another search engine."""

import heapq
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import numpy as np
from tqdm import tqdm

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.output import atomic_directory
from bert_jax.search.engines import ENGINES, Passage
from bert_jax.search.index import Index
from bert_jax.search.segment import Segment


def export(index: Index, directory: Path, engine: str) -> None:
    """Write the index to the directory, replacing an earlier export there. The index is only read."""
    check_name(engine, ENGINES, "engine")
    writer = ENGINES[engine]
    total, model = index.manifest.passages, index.manifest.model
    if directory.resolve().is_relative_to(index.path.resolve()):
        raise BertJaxError(f"{directory} is in the index; name a directory elsewhere")
    if not total:
        raise BertJaxError(f"{index.path} has no documents, so there is nothing to export; add some")
    if writer.needs_vectors and not model:
        able = " or ".join(name for name, other in ENGINES.items() if not other.needs_vectors)
        raise BertJaxError(
            f"{index.path} has no vectors, which {engine} needs; export to {able}, or build an index with --model"
        )
    earlier = [path.name for path in directory.glob("*") if writer.files.fullmatch(path.name)]
    with atomic_directory(directory, earlier) as folder:
        rows = tqdm(passages(index), total=total, unit=" passages", disable=None, delay=2)
        writer.write(folder, rows, model.dimensions if model else 0)


def passages(index: Index) -> Iterator[Passage]:
    """Yield the passages in the order of their documents' ids, regardless of how the index was built."""
    last, number = None, 0
    for document, segment, row in heapq.merge(*map(in_order, index.segments), key=itemgetter(0)):
        number = number + 1 if document == last else 0
        last = document
        start, end = segment.spans[row].tolist()
        title = segment.titles[segment.documents[row]]
        yield Passage(document, number, title, segment.texts[row], start, end, segment.vectors[row])


def in_order(segment: Segment) -> Iterator[tuple[str, Segment, int]]:
    for row in np.argsort(segment.order):
        if segment.live is None or segment.live[row]:
            yield segment.document_place(row)[0], segment, row
