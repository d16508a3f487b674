"""Static embeddings are trained, indexed, served and used as features like other embedders."""

import json
import urllib.request

import numpy as np
import pytest

import bert_jax
from bert_jax.command.export import export_checkpoint
from bert_jax.command.main import main
from tests.serve.processes import serving
from tests.support.embedding_tasks import random_pairs
from tests.support.made_up_language import WORDS
from tests.support.static_models import small_rows, small_tokenizer, write_model2vec
from tests.support.tables import write_jsonl
from tests.support.texts import marked_texts, random_texts


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """Static embeddings of the words of the made-up language."""
    words = ["[PAD]", "[UNK]", *WORDS]
    tensors = {"embeddings": small_rows(len(words), 16)}
    return write_model2vec(tmp_path_factory.mktemp("static") / "model", tensors, small_tokenizer(words))


@pytest.mark.slow
def test_a_run_trains_them_and_writes_static_embeddings(static, tmp_path):
    rows = [*random_pairs(200), {"question": "unknown", "answer": "words alone"}]
    run = bert_jax.train(
        "embed", workdir=tmp_path / "run", init=static, init_share=0.0, steps=40,
        data={"train": write_jsonl(tmp_path / "pairs.jsonl", rows), "batch_size": 32},
        optimizer={"learning_rate": 0.05},
    )  # fmt: skip
    losses = [row["loss"] for row in run.metrics if row["kind"] == "train"]
    assert losses[-1] < 0.5 * losses[0]
    texts = random_texts(20)
    before, after = bert_jax.load(static).encode(texts), run.model.encode(texts)
    assert type(run.model) is bert_jax.StaticEmbedder and not run.model.encode("unknown").any()
    assert np.abs(after - before).max() > 0.1
    export_checkpoint(tmp_path / "run", tmp_path / "exported")
    assert bert_jax.load(tmp_path / "exported").encode(texts).shape == after.shape
    assert main(["check", str(tmp_path / "run/model")]) == 0
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(
        str(tmp_path / "run/model"), device="cpu"
    )
    assert np.abs(theirs.encode(texts) - after).max() <= 1e-6


@pytest.mark.slow
def test_a_classifier_is_trained_on_them(static, tmp_path):
    texts, labels = map(list, zip(*marked_texts(80, 0), strict=True))
    run = bert_jax.finetune(static, texts, labels, workdir=tmp_path / "run", method="linear_probe")
    assert run.scores["accuracy"] > 0.8
    assert (run.model.engine.name, run.model.predict("w0")) == ("jax", "good")
    again = bert_jax.load(tmp_path / "run/model")
    assert again.predict_proba(texts[:5]).tolist() == run.model.predict_proba(texts[:5]).tolist()


def test_an_index_is_built_and_searched_with_them(static, tmp_path):
    texts = random_texts(50, seed=3)
    index = bert_jax.Index.build(texts, tmp_path / "index", model=static)
    hits = index.search(texts[7], top_k=3, retrievers=["vectors"])
    assert hits[0].text == texts[7] and hits[0].score > hits[1].score


@pytest.mark.slow
def test_a_server_gives_their_vectors(static):
    with serving({"static": static}) as url:
        body = json.dumps({"inputs": ["w1 w2", "", "unknown"]}).encode()
        request = urllib.request.Request(f"{url}/embed", body, {"Content-Type": "application/json"})
        vectors = np.array(json.load(urllib.request.urlopen(request)))
    assert np.abs(vectors - bert_jax.load(static).encode(["w1 w2", "", "unknown"])).max() <= 1e-6
    assert vectors[0].any() and not vectors[1:].any()
