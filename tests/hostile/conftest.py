import json

import pytest

import bert_jax
from bert_jax.export.static_directory import export_static
from bert_jax.hub.sentence_transformers import CROSS_ENCODER, EmbedderSettings, write_embedder
from bert_jax.hub.sparse_encoder import SparseSettings
from tests.hostile import material
from tests.hostile.fork_pool import Forks


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """The folder that `material.make` fills; tests only read it."""
    return material.make(tmp_path_factory.mktemp("material"))


@pytest.fixture(scope="module")
def fork_pool():
    with Forks() as fork_pool:
        yield fork_pool


@pytest.fixture(scope="session")
def models(small, tmp_path_factory):
    """Each as the class for it, by the name of its use; and their directories."""
    root = tmp_path_factory.mktemp("models")
    vocabulary = small / "vocabulary"
    paths = {
        "tag": material.model(root / "tagger", vocabulary, ("tag",), ("O", "B-X")),
        "answer": material.model(root / "finder", vocabulary, ("answer",)),
        "classify": small / "classifier",
        "labels": material.model(root / "labels", vocabulary, ("classify",), ("a", "b")),
        "number": material.model(root / "number", vocabulary, ("classify",), ("LABEL_0",)),
        "rank": material.model(root / "reranker", vocabulary, ("classify",), ("LABEL_0",)),
        "embed": material.model(root / "embedder", vocabulary),
        "plain": material.model(root / "encoder", vocabulary),
        "sparse": material.model(
            root / "sparse", vocabulary, ("mlm",), sparse=SparseSettings(query_weights=True)
        ),
        "m3": material.model(root / "m3", vocabulary, m3=material.M3, embedder=material.M3.embedder),
        "tokens": material.model(root / "tokens", vocabulary, multi_vector=material.TOKEN_VECTORS),
        "mlm": small / "masked",
    }
    write_embedder(paths["embed"], EmbedderSettings(prompts={"query": "w1 ", "document": "w2 "}), 32)
    export_static(paths["embed"], root / "static")
    paths["static"] = root / "static"
    for name, keys in {
        "rank": CROSS_ENCODER, "labels": {"problem_type": "multi_label_classification"},
    }.items():  # fmt: skip
        config = paths[name] / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | keys))
    return {name: bert_jax.load(path) for name, path in paths.items()} | {
        "path": small / "masked",
        "paths": paths,
    }
