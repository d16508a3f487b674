"""Export the passages of an index, with their vectors, to a Parquet file that search engines and databases load.

Sparse vectors become lists of the ids of tokens and of their weights.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pyarrow as pa

from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import track
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import SPARSE_ROWS
from bert_jax.search.segment import Segment
from bert_jax.search.sparse import unpack_row
from bert_jax.search.vector_files import vector_writer

ROWS = 4096  # in a row group
TEXT_FIELDS = [("id", pa.string()), ("document", pa.string()), ("title", pa.string()), ("text", pa.string())]
FIELDS = [*TEXT_FIELDS, ("start", pa.int32()), ("end", pa.int32())]


def export_parquet(index: Index, path: Path) -> None:
    """Write all passages in the order of their documents' ids, regardless of how the index was built.

    The id of a passage is the same in every export, so that loading it again replaces it. Without a model there are no
    vectors, and so no column `embedding`.
    """
    if path.suffix.lower() != ".parquet":
        raise BertJaxError(f"{path} does not end with .parquet; name a file that does")
    if path.resolve().is_relative_to(index.path.resolve()):
        raise BertJaxError(f"{path} is in the index; name a file elsewhere")
    if not index.manifest.passages:
        raise BertJaxError(f"{index.path} has no documents, so there is nothing to export; add some")
    has_vectors, has_sparse = index.manifest.model is not None, index.manifest.sparse_model is not None
    rows = track(iterate_passages(index), "passages", total=index.manifest.passages)
    with vector_writer(path, "float32") as append:
        while group := list(islice(rows, ROWS)):
            *cells, vectors, sparse_rows = zip(*group, strict=True)
            columns = {
                name: pa.array(values, cell_type)
                for values, (name, cell_type) in zip(cells, FIELDS, strict=True)
            }
            if has_sparse:
                tokens, weights = zip(*map(unpack_row, sparse_rows), strict=True)
                columns |= {"sparse_indices": pa.array(tokens), "sparse_values": pa.array(weights)}
            append(stack_finite(vectors, cells[1]) if has_vectors else None, **columns)


def iterate_passages(index: Index) -> Iterator[tuple[Any, ...]]:
    """Yield the values of FIELDS, the vector and the row of the sparse vector of each passage."""
    last, number = None, 0
    for document, segment, row in heapq.merge(*map(sort_rows, index.segments), key=itemgetter(0)):
        number = number + 1 if document == last else 0
        last = document
        start, end = segment.spans[row].tolist()
        title = segment.titles[segment.documents[row]]
        name = str(uuid5(NAMESPACE_URL, f"{document}#{number}"))
        sparse_row = segment.rows[SPARSE_ROWS][row] if segment.sparse else None
        yield name, document, title, segment.texts[row], start, end, segment.vectors[row], sparse_row


def sort_rows(segment: Segment) -> Iterator[tuple[str, Segment, int]]:
    """Yield the document and the row of each passage that is not removed, in the order of documents and starts."""
    for row in np.argsort(segment.order):
        if segment.live is None or segment.live[row]:
            yield segment.document_position(row)[0], segment, row


def stack_finite(vectors: Sequence[np.ndarray], documents: Sequence[str]) -> np.ndarray:
    stacked = np.stack(vectors)
    finite = np.isfinite(stacked).all(1)
    if not finite.all():
        raise BertJaxError(
            f'a vector of document "{documents[int(finite.argmin())]}" is not finite; check the weights of the model, '
            "and build the index again"
        )
    return stacked
