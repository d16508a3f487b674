"""Small indexes of random documents, whose dense and sparse vectors are made of hashes."""

import random
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np

from bert_jax.inference.computations import SparseVector
from bert_jax.search.documents import Document
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import DENSE_ROWS, SPARSE_ROWS, IndexedModel, IndexManifest
from bert_jax.search.index_writer import open_writer
from bert_jax.search.passages import PassageCutter, WordCounter
from bert_jax.search.sparse import pack_rows

VECTOR_WIDTH, VOCABULARY, ACTIVE = 16, 61, 40
MODEL_FACTS = IndexedModel("", "", "", "mean", True, "", "", 64, VECTOR_WIDTH)
SPARSE_FACTS = IndexedModel("", "", "", "max", False, "", "", 64, VOCABULARY, ACTIVE)
INDEX_SETTINGS = IndexManifest(MODEL_FACTS, passage_tokens=12, overlap=3, sparse_model=SPARSE_FACTS)
DOCUMENT_WORDS = [f"w{n}" for n in range(60)]


def hashed_vectors(texts: list[str]) -> np.ndarray:
    """Any text's own vector, and now and then that of another text."""
    seeds = [int.from_bytes(blake2b(text.encode(), digest_size=2).digest()) % 5000 for text in texts]
    vectors = np.stack([np.random.default_rng(seed).normal(size=VECTOR_WIDTH) for seed in seeds])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def sparse_vectors(texts: list[str]) -> list[SparseVector]:
    """A weight for each of DOCUMENT_WORDS in a text; more for a word that comes often."""
    vectors = []
    for text in texts:
        numbers = [int(number) for number in re.findall(r"w(\d+)", text.lower())]
        tokens, counts = np.unique(np.array(numbers, np.int32), return_counts=True)
        vectors.append(SparseVector(tokens, (np.log1p(counts) * (1 + tokens / 7)).astype(np.float32)))
    return vectors


def sparse_rows(texts: list[str]) -> np.ndarray:
    return pack_rows(sparse_vectors(texts), ACTIVE)


def random_document(name: str, rng: random.Random) -> Document:
    words = rng.choices(DOCUMENT_WORDS, range(len(DOCUMENT_WORDS), 0, -1), k=rng.randint(1, 60))
    text = "".join(word.capitalize() + rng.choice([" ", " ", ". ", ".\n"]) for word in words)
    return Document(name, rng.choice(["", "w1 w2"]), text)


def change_index(path, documents=(), remove=(), compact=False, settings=INDEX_SETTINGS):
    with open_writer(path, settings) as writer:
        if remove:
            writer.remove_documents(remove)
        if documents:
            writer.add_documents(
                documents,
                PassageCutter(WordCounter(), settings.passage_tokens, settings.overlap),
                {DENSE_ROWS: hashed_vectors, SPARSE_ROWS: sparse_rows},
            )
        if compact:
            writer.compact(settings)
    return writer


class QueryEncoder:
    """Stands in for a model."""

    encode_queries = staticmethod(hashed_vectors)


class SparseQueryEncoder:
    @staticmethod
    def encode_queries(texts: list[str]) -> Iterator[tuple[SparseVector, list[str]]]:
        for vector in sparse_vectors(texts):
            yield vector, [f"w{token}" for token in vector.ids]


def open_with_encoders(path, **how) -> Index:
    index = Index.open(path, **how)
    index.encoders |= {DENSE_ROWS: QueryEncoder, SPARSE_ROWS: SparseQueryEncoder}
    return index


def file_contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
