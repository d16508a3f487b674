"""Classifiers on the vectors of an embedder: the mean of a text's states, or that of [CLS]."""

from dataclasses import replace

import numpy as np
import pytest

from bert_jax.hub import sentence_transformers
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.inference.load import load
from bert_jax.report import model_info
from bert_jax.tasks import load_config as load_task
from tests.support.families import FAMILY_CONFIGS, family_layout
from tests.support.finetuning_runs import finetune
from tests.support.packing import assert_packed_equals_separate
from tests.support.tables import write_csv
from tests.support.texts import marked_texts

pytestmark = pytest.mark.slow
LABELS = ("bad", "good")


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_logits_are_a_linear_function_of_the_direction_of_what_is_pooled(tmp_path, encoder_path, pooling):
    head = f"classify_{pooling}"
    load(encoder_path, head=head, labels=LABELS, seed=3).save(tmp_path)
    opened, texts = load(tmp_path), ["w1 w2", "w3", "w4 w5 w6 w7"]
    assert (opened.layout.heads, opened.layout.pooler, opened.labels) == ((head,), False, LABELS)
    dense = opened.params[head]["dense"]
    directions = opened.encode(texts, pooling=pooling, normalize_embeddings=True)
    directions *= opened.config.hidden_size**0.5
    logits = directions @ np.asarray(dense["kernel"]) + dense["bias"]
    likely = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(opened.predict_proba(texts), likely, atol=1e-5)
    name = {"mean": "BertForMeanDirectionClassification", "cls": "BertForFirstTokenDirectionClassification"}[
        pooling
    ]
    assert model_info.collect_model_facts(tmp_path)["odd"] == [
        f"transformers has no {name}; with trust_remote_code=True it opens the model by modeling_bert_jax.py, and else "
        "the encoder alone"
    ]


@pytest.mark.parametrize("head", ["classify_mean", "classify_cls"])
def test_packed_rows_equal_separate_ones_in_a_family_without_a_pooler(head):
    assert_packed_equals_separate(
        family_layout("distilbert", FAMILY_CONFIGS["distilbert"] | {"vocab_size": 61}, (head,), LABELS)
    )


@pytest.mark.parametrize(
    ("embedder", "pooling", "head"),
    [("mean", "auto", "classify_mean"), ("cls", "auto", "classify_cls"), ("mean", "native", "classify"),
     (None, "auto", "classify"), (None, "mean", "classify_mean"), ("max", "auto", "classify")],
)  # fmt: skip
def test_a_classifier_reads_what_is_pooled_or_asked_for(
    tmp_path, encoder_path, capsys, embedder, pooling, head
):
    load(encoder_path).save(tmp_path / "init")
    if embedder:
        sentence_transformers.write_embedder(
            tmp_path / "init", replace(EmbedderSettings(), pooling=embedder), 32
        )
    data = write_csv(tmp_path / "t.csv", marked_texts(12, 0))
    given = [f"init={tmp_path / 'init'}", f"data.train={data}", "data.max_length=32"]
    task, config = load_task("configs/classify.py", [*given, f"model.pooling={pooling}"])
    assert task.open(config, ModelDirectories())[0].layout.heads == (head,)
    told = "transformers opens the model with trust_remote_code=True; --config.model.pooling=native keeps"
    assert (told in capsys.readouterr().err) is (pooling == "auto" and head != "classify"), (
        "chosen for the user"
    )


def test_what_was_trained_on_the_mean_is_trained_on(tmp_path, encoder_path):
    path = write_csv(tmp_path / "t.csv", marked_texts(120, 0))
    given = {"data.train": path, "data.validation": path, "model.pooling": "mean"}
    assert finetune("classify", encoder_path, tmp_path / "run", **given)[-1]["accuracy"] > 0.9
    again = [f"init={tmp_path / 'run/model'}", f"data.train={path}", "data.max_length=32"]
    task, config = load_task("configs/classify.py", again)
    assert task.open(config, ModelDirectories())[0].layout.heads == ("classify_mean",)
