"""The retrievers of an index, by their names, and which of them a search asks."""

from collections.abc import Mapping, Sequence

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.search import keywords
from bert_jax.search.index_manifest import (
    DENSE_ROWS,
    MODEL_SETTINGS,
    SPARSE_ROWS,
    TOKEN_ROWS,
    IndexManifest,
)
from bert_jax.search.index_reader import IndexReader
from bert_jax.search.row_files import row_files
from bert_jax.search.segment import CANDIDATES
from bert_jax.search.segment_files import string_files
from bert_jax.text.array_likes import to_plain_list

KEYWORDS, VECTORS, SPARSE, LATE_INTERACTION = "keywords", "vectors", "sparse", "late_interaction"
FUSION, RERANKER = "fusion", "reranker"
# Of the retrievers that need a model: the file of its rows, and what an index without it lacks.
MODEL_RETRIEVERS = {
    VECTORS: (DENSE_ROWS, "vectors"),
    SPARSE: (SPARSE_ROWS, "sparse vectors"),
    LATE_INTERACTION: (TOKEN_ROWS, "token vectors"),
}


def available_retrievers(manifest: IndexManifest) -> list[str]:
    models = manifest.models
    return [KEYWORDS, *(name for name, (rows, _) in MODEL_RETRIEVERS.items() if rows in models)]


def count_bytes(manifest: IndexManifest, retrievers: Sequence[str]) -> int:
    """Return the bytes of the files that these retrievers find passages by."""
    names = (
        {*keywords.FILES.names, keywords.LENGTHS, *string_files(keywords.WORDS)}
        if KEYWORDS in retrievers
        else set()
    )
    for row_file in row_files(manifest.models):
        if any(MODEL_RETRIEVERS.get(name, ("",))[0] == row_file.name for name in retrievers):
            names.update(row_file.names, row_file.derived, CANDIDATES if row_file.name == DENSE_ROWS else ())
    return sum(
        facts["bytes"]
        for segment in manifest.segments
        for name, facts in segment.files.items()
        if name in names
    )


def choose_retrievers(
    index: IndexReader, retrievers: Sequence[str] | None, weights: Mapping[str, float] | None
) -> list[str]:
    """Return the retrievers to search by. Raise if the index lacks one of them, or if a weight is invalid."""
    available = available_retrievers(index.manifest)
    if weights is not None and not isinstance(weights, Mapping):
        raise BertJaxError(f'weights must be a dict, as {{"keywords": 2}}, not {weights!r:.60}')
    if retrievers is not None and not is_list_of_text(retrievers):
        raise BertJaxError(f'retrievers must be a list, as ["keywords"], not {retrievers!r:.60}')
    for name, (rows, what) in MODEL_RETRIEVERS.items():
        if name in (retrievers or ()) and name not in available:
            option = f"--{MODEL_SETTINGS[rows].replace('_', '-')}"
            raise BertJaxError(
                f"{index.path} has no {what} because it was built without {option}; search it by "
                f"{' or '.join(available)}"
            )
    for name in [*(retrievers or ()), *(weights or ())]:
        if name not in available:
            raise BertJaxError(f'this index is searched by {" and ".join(available)}, not by "{name!s:.60}"')
    for name, weight in (weights or {}).items():
        check_number(weight, f"the weight of {name}", allowed=Range(0))
    return [name for name in available if retrievers is None or name in retrievers] or available


def read_queries(query: str | Sequence[str]) -> list[str]:
    listed = [query] if isinstance(query, str) else to_plain_list(query)
    if not is_list_of_text(listed):
        raise BertJaxError(f"query must be a text or a list of texts, not {query!r:.60}")
    if blank := [number for number, text in enumerate(listed) if not text.strip()]:
        position = "query" if isinstance(query, str) else f"query[{blank[0]}]"
        raise BertJaxError(f"{position} is blank; give words to search for")
    return list(listed)


def is_list_of_text(values: object) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)
