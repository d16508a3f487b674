"""index.json: the contents of an index. No other file is ever replaced, so this is when a change takes effect.

INDEX/index.json                 settings, facts about the model, and the segments with the hashes of their files
INDEX/segments/000001/           documents, passages, vectors and postings, written once
INDEX/removed/000001-000003.npy  numbers of the documents of segment 1 that change 3 and earlier ones removed
INDEX/building/                  the segment that is being written; the next process reuses a killed one's vectors
"""

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_json
from bert_jax.core.hashes import SELF, FileFacts, check_version, is_sealed, seal
from bert_jax.core.typed_json import coerce_json
from bert_jax.search.language import AUTO, LANGUAGES
from bert_jax.search.segment_files import REBUILD_REMEDY
from bert_jax.text.input_files import MEMORY_PREFIX

INDEX_FILE, SEGMENTS, REMOVED, BUILDING = "index.json", "segments", "removed", "building"
# The files of the rows that models compute for the passages of a segment.
DENSE_ROWS, SPARSE_ROWS, TOKEN_ROWS = "vectors.npy", "sparse.npy", "token_vectors.npy"
# The setting of an index that holds the model of these rows, and the argument that names it.
MODEL_SETTINGS = {DENSE_ROWS: "model", SPARSE_ROWS: "sparse_model", TOKEN_ROWS: "multi_vector_model"}
VERSION = 2
MAX_PASSAGE_TOKENS = 8192  # the most tokens of a passage


@dataclass(frozen=True)
class IndexedModel:
    """Everything that determines the vectors."""

    path: str  # where the model was; --model names another directory
    fingerprint: str
    tokenizer: str
    pooling: str
    normalize: bool
    query_prompt: str
    document_prompt: str
    max_length: int
    dimensions: int
    max_active_dims: int = 0  # of a sparse vector: the most tokens that have a weight; 0: it is dense
    pool_factor: float | None = None  # of token vectors: so many are averaged to one; None: as the model does


@dataclass(frozen=True)
class Recall:
    """The share of the `at` nearest passages that approximate search finds, with passages of the index as queries."""

    at: int
    queries: int
    recall: float


@dataclass(frozen=True)
class RemovedDocuments:
    name: str
    documents: int
    passages: int
    facts: FileFacts


@dataclass(frozen=True)
class SegmentFacts:
    name: str
    documents: int
    passages: int
    files: dict[str, FileFacts]
    removed: RemovedDocuments | None = None


@dataclass(frozen=True)
class IndexManifest:
    model: IndexedModel | None  # of the vectors; None: there are none
    passage_tokens: int
    overlap: int
    quantization: str | None = None  # "binary"
    approximate: str | None = None  # "hnsw"
    recall: Recall | None = None
    # Whose stems the keywords are; None: they are whole words, as in indexes that do not name a language. AUTO: it is
    # detected when the first segment is written.
    language: str | None = None
    changes: int = 0
    sources: tuple[str, ...] = ()  # the files, folders and globs that documents were read from
    segments: tuple[SegmentFacts, ...] = ()
    version: int = VERSION
    sparse_model: IndexedModel | None = None
    multi_vector_model: IndexedModel | None = None

    @property
    def models(self) -> dict[str, IndexedModel]:
        """The models whose rows a segment has, by the file of these."""
        return models_by_rows(self)

    @property
    def pool_factor(self) -> float | None:
        """The token vectors that are averaged to one; None if there are none, or if their model says how many."""
        return self.multi_vector_model.pool_factor if self.multi_vector_model else None

    @property
    def stemmed_language(self) -> str | None:
        return None if self.language == AUTO else self.language

    @property
    def documents(self) -> int:
        return sum(
            segment.documents - (segment.removed.documents if segment.removed else 0)
            for segment in self.segments
        )

    @property
    def passages(self) -> int:
        return sum(
            segment.passages - (segment.removed.passages if segment.removed else 0)
            for segment in self.segments
        )

    @property
    def exact(self) -> bool:
        return not self.quantization and not self.approximate

    def files(self) -> Iterator[tuple[str, FileFacts]]:
        """Yield the name of every other file of the index, with its expected size and hash."""
        for segment in self.segments:
            for name, facts in segment.files.items():
                yield f"{SEGMENTS}/{segment.name}/{name}", facts
            if segment.removed:
                yield f"{REMOVED}/{segment.removed.name}", segment.removed.facts

    def with_sources(self, given: Sequence[str]) -> "IndexManifest":
        return replace(self, sources=tuple(dict.fromkeys([*self.sources, *map(absolute_source, given)])))

    def known_files(self, found_in: Mapping[str, str]) -> set[str]:
        """Return the files, of those found in the given sources, that were read before: by any name of theirs."""
        matched = {path for source in self.sources for path in glob.iglob(source, recursive=True)}
        known = {*self.sources, *matched}
        return {
            file
            for file, given in found_in.items()
            if absolute_source(given) in known
            or not known.isdisjoint(map(str, (path := Path(os.path.abspath(file)), *path.parents)))
        }

    def other_sources(self, given: Sequence[str]) -> list[str]:
        """Return the sources that are not given but still exist."""
        named = set(map(absolute_source, given))
        return [source for source in self.sources if source not in named and source_exists(source)]


def models_by_rows(settings: object) -> dict[str, Any]:
    """Return the models that are set, by the file of their rows."""
    models = {rows: getattr(settings, name) for rows, name in MODEL_SETTINGS.items()}
    return {rows: model for rows, model in models.items() if model}


def find_contradiction(manifest: IndexManifest) -> str | None:
    """Say what cannot be so in an index.json, whoever sealed it; None if nothing."""
    names = [segment.name for segment in manifest.segments]
    if repeated := [name for name in names if names.count(name) > 1]:
        return f"it lists segment {repeated[0]} twice"
    for segment in manifest.segments:
        name, removed = segment.name, segment.removed
        if not re.fullmatch(r"\d{6,12}", name) or int(name) > manifest.changes:
            return f"it lists a segment {name!r:.60}, which none of its {manifest.changes:,} changes wrote"
        if removed and not re.fullmatch(rf"{name}-\d{{6,12}}\.npy", removed.name):
            return f"it lists {removed.name!r:.60} as documents that were removed from segment {name}"
        if segment.documents < 1 or segment.passages < 1:
            return f"segment {name} has {segment.documents} documents and {segment.passages} passages"
        if removed and not (
            0 < removed.documents < segment.documents and 0 <= removed.passages <= segment.passages
        ):
            return (
                f"{removed.documents} documents were removed from the {segment.documents} of segment {name}"
            )
    tokens = manifest.passage_tokens
    if not (1 <= tokens <= MAX_PASSAGE_TOKENS and 0 <= manifest.overlap <= tokens // 2):
        return f"its passages have {tokens} tokens, of which neighbours share {manifest.overlap}"
    for name, model in manifest.models.items():
        if (
            model.dimensions < 1
            or model.max_length < 1
            or (model.max_active_dims > 0) != (name == SPARSE_ROWS)
            or not (model.pool_factor is None or (model.pool_factor >= 1 and name == TOKEN_ROWS))
        ):
            return (
                f"a model reads {model.max_length} tokens and makes vectors of {model.dimensions} dimensions, "
                f"at most {model.max_active_dims} of them active, and pools {model.pool_factor} tokens"
            )
    if manifest.language not in (*LANGUAGES, None) and (manifest.language != AUTO or manifest.segments):
        return f'its language is "{manifest.language:.60}"'
    if (manifest.quantization, manifest.approximate) not in ((None, None), ("binary", None), (None, "hnsw")):
        return f'it is searched by "{manifest.quantization!s:.60}" and "{manifest.approximate!s:.60}"'
    return None


def source_exists(source: str) -> bool:
    """Whether a path exists or a glob matches a file; a source on the hub or in a program is taken to exist."""
    return (
        "://" in source
        or source.startswith(MEMORY_PREFIX)
        or os.path.exists(source)
        or any(glob.iglob(source, recursive=True))
    )


def absolute_source(source: str) -> str:
    return source if ":" in source.split("/", 1)[0] else os.path.abspath(source)


def is_index(path: str | os.PathLike[str]) -> bool:
    return (Path(path) / INDEX_FILE).is_file()


def is_built(directory: Path) -> bool:
    """Whether anything was ever added to an index in the directory."""
    return (directory / INDEX_FILE).exists() and read_index_manifest(directory).changes > 0


def read_index_manifest(directory: Path) -> IndexManifest:
    path = directory / INDEX_FILE
    try:
        content = read_json(path, dict[str, Any], REBUILD_REMEDY)
    except (FileNotFoundError, NotADirectoryError):
        raise BertJaxError(
            f"{directory} is not an index: it has no {INDEX_FILE}; `bert-jax index` makes one"
        ) from None
    check_version(content, VERSION, path, "make the index anew with `bert-jax index`")
    if not is_sealed(content):
        raise BertJaxError(f"{path} is damaged: its hash differs; {REBUILD_REMEDY}")
    del content[SELF]
    try:
        manifest = coerce_json(content, IndexManifest)
    except BertJaxError as error:
        raise BertJaxError(f"{path}: {error}; {REBUILD_REMEDY}") from None
    if wrong := find_contradiction(manifest):
        raise BertJaxError(f"{path} is damaged: {wrong}; {REBUILD_REMEDY}")
    return manifest


def write_index_manifest(directory: Path, manifest: IndexManifest) -> None:
    write_json(directory / INDEX_FILE, seal(asdict(manifest)))
