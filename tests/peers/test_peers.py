"""Other libraries with an embedder of ours, each in an environment of its own, through the adapters of the guide."""

import ast
import json

import numpy as np
import pytest

import bert_jax
from bert_jax.export.static_directory import export_static
from tests.peers.trackers import READERS, read_followers
from tests.peers.trials import TRIALS, read_adapters
from tests.support.environments import new_environment, run_command
from tests.support.m3_models import M3_TEXTS, write_published_m3
from tests.support.minilm import MINILM
from tests.support.multi_vector_models import CONFIG, TOKEN_TEXTS, WORDS, write_stanford
from tests.support.project import ROOT
from tests.support.small_models import write_model

VERSIONS = {
    "scikit-learn": "1.9.1",
    "bertopic": "0.17.4",
    "keybert": "0.9.0",
    "langchain-core": "1.8.3",
    "llama-index-core": "0.14.25",
    "mteb": "2.26.24",
    "spacy": "3.8.18",
}
MODEL2VEC = "0.10.0"
# The newest versions do not open each other.
FLAG_EMBEDDING = ["FlagEmbedding==1.4.2", "transformers==4.57.6", "datasets==4.4.2"]
PYLATE = "1.6.0"
TRACKERS = {"wandb": "0.31.0", "mlflow": "3.17.2", "trackio": "0.43.0"}
# What these need beside sentence-transformers, which they do not need here.
INSTEAD_OF_DEPENDENCIES = {
    "bertopic": ["hdbscan", "umap-learn", "pandas", "plotly", "scikit-learn", "tqdm"],
    "keybert": ["scikit-learn", "rich"],
}


@pytest.fixture
def environment():
    with new_environment() as programs:
        yield programs


def test_adapters_are_short_and_have_trials():
    adapters = read_adapters()
    assert adapters.keys() == VERSIONS.keys() == TRIALS.keys()
    definitions = [node for code in adapters.values() for node in ast.parse(code).body]
    assert max(len(list(filter(None, ast.unparse(node).splitlines()))) for node in definitions) <= 10


@pytest.mark.long
@pytest.mark.parametrize("library", VERSIONS)
def test_a_library_computes_with_our_model(library, environment):
    needed = INSTEAD_OF_DEPENDENCIES.get(library, [])
    release = f"{library}=={VERSIONS[library]}"
    install = (environment / "pip", "install", "--quiet", "--config-settings", "editable_mode=compat")
    run_command(*install, "-e", ROOT, *(needed or [release]))
    if needed:
        run_command(*install, "--no-deps", release)
    run_command(environment / "python", "-m", "tests.peers.trials", library, MINILM)


@pytest.mark.long
def test_model2vec_and_we_open_the_static_embeddings_of_the_other(environment, tmp_path):
    export_static(MINILM, tmp_path / "distilled")
    run_command(environment / "pip", "install", "--quiet", "-e", ROOT, f"model2vec=={MODEL2VEC}")
    python = environment / "python"
    run_command(python, "-m", "tests.peers.model2vec_trial", tmp_path / "distilled", tmp_path)


@pytest.mark.long
def test_flag_embedding_and_we_compute_the_same_with_bge_m3(environment, tmp_path):
    write_m3_results(tmp_path)
    run_command(environment / "pip", "install", "--quiet", *FLAG_EMBEDDING)
    run_command(environment / "python", "-m", "tests.peers.flag_embedding_trial", tmp_path)


def write_m3_results(folder) -> None:
    model = bert_jax.load(write_published_m3(folder / "published", tokens=24))  # it opens no other width
    model.save(folder / "saved")
    vectors, weights = model.encode_all(M3_TEXTS), [0.4, 0.2, 0.4]
    rows = [vectors.lexical_weights[[n]] for n in range(len(M3_TEXTS))]
    pairs = [(query, document) for query in M3_TEXTS for document in M3_TEXTS]
    results = {
        "texts": M3_TEXTS,
        "max_length": model.max_seq_length,
        "dense": vectors.dense_vecs.tolist(),
        "sparse": [dict(zip(map(str, row.indices), row.data.tolist(), strict=True)) for row in rows],
        "tokens": [array.tolist() for array in vectors.colbert_vecs],
        "pairs": pairs,
        "weights": weights,
        "scores": {name: scores.tolist() for name, scores in model.compute_score(pairs, weights).items()},
    }
    (folder / "ours.json").write_text(json.dumps(results))


@pytest.mark.long
def test_pylate_and_we_compute_the_same_token_vectors(environment, tmp_path):
    write_model(tmp_path / "base", heads=(), pooler=False, words=WORDS, config=CONFIG)
    stanford = {"query_maxlen": 9, "doc_maxlen": 10, "mask_punctuation": True}
    write_stanford(tmp_path / "stanford", stanford | {"attend_to_mask_tokens": True})
    (tmp_path / "texts.json").write_text(json.dumps(TOKEN_TEXTS))
    run_command(environment / "pip", "install", "--quiet", f"pylate=={PYLATE}")
    run_command(environment / "python", "-m", "tests.peers.pylate_trial", tmp_path)
    results = json.loads((tmp_path / "theirs.json").read_text())
    assert len(results) == 5
    for name, theirs in results.items():
        model = bert_jax.load(tmp_path / name)
        queries, documents = model.encode_query(TOKEN_TEXTS), model.encode_document(TOKEN_TEXTS)
        for own, other in zip(
            [*queries, *documents], [*theirs["queries"], *theirs["documents"]], strict=True
        ):
            np.testing.assert_allclose(own, np.reshape(other, (-1, 6)), atol=1e-5, err_msg=name)
        with_tokens = [document for document in documents if len(document)]
        np.testing.assert_allclose(
            model.similarity(queries, with_tokens), theirs["scores"], rtol=1e-5, err_msg=name
        )


def test_each_tracker_follows_a_run_by_a_few_lines_of_the_guide():
    followers = read_followers()
    assert followers.keys() == TRACKERS.keys() == READERS.keys()
    assert max(len(ast.unparse(ast.parse(code)).splitlines()) for code in followers.values()) <= 5


@pytest.mark.long
@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_tracker_keeps_each_measurement_of_a_run(tracker, environment, tmp_path):
    release = f"{tracker}=={TRACKERS[tracker]}"
    run_command(environment / "pip", "install", "--quiet", "-e", ROOT, release)
    run_command(environment / "python", "-m", "tests.peers.trackers", tracker, tmp_path)
