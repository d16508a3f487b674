"""Small indexes of random documents, whose vectors are made of hashes."""

import random
from hashlib import blake2b
from pathlib import Path

import numpy as np

from bert_jax.search.documents import Document
from bert_jax.search.index_manifest import IndexedModel, IndexManifest
from bert_jax.search.index_writer import open_writer
from bert_jax.search.passages import PassageCutter, WordCounter

VECTOR_WIDTH = 16
MODEL_FACTS = IndexedModel("", "", "", "mean", True, "", "", 64, VECTOR_WIDTH)
INDEX_SETTINGS = IndexManifest(MODEL_FACTS, passage_tokens=12, overlap=3)
DOCUMENT_WORDS = [f"w{n}" for n in range(60)]


def hashed_vectors(texts: list[str]) -> np.ndarray:
    """Any text's own vector, and now and then that of another text."""
    seeds = [int.from_bytes(blake2b(text.encode(), digest_size=2).digest()) % 5000 for text in texts]
    vectors = np.stack([np.random.default_rng(seed).normal(size=VECTOR_WIDTH) for seed in seeds])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


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
                hashed_vectors,
            )
        if compact:
            writer.compact(settings)
    return writer


class QueryEncoder:
    """Stands in for a model."""

    encode_queries = staticmethod(hashed_vectors)


def file_contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
