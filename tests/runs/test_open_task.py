"""A task for a training loop of one's own: its batches, losses and models are those of a run."""

import jax
import numpy as np
import pandas as pd
import pytest

import bert_jax
from tests.support.texts import marked_texts

KEYS = {
    "epochs": 1, "seed": 3, "head_init": "pretrained", "optimizer.learning_rate": 1e-9, "report": False, "log.every": 1,
    "data": {"max_length": 32, "batch_size": 8, "folds": 0}, "checkpoints.every": 1000,
    "model": {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "head_dropout": 0},
}  # fmt: skip


@pytest.fixture(scope="module")
def keys(encoder_path, tmp_path_factory) -> dict:
    path = tmp_path_factory.mktemp("data") / "train.csv"
    pd.DataFrame(marked_texts(24, 0), columns=["text", "label"]).to_csv(path, index=False)
    return KEYS | {"init": encoder_path, "data": KEYS["data"] | {"train": path}}


@pytest.mark.slow
def test_batches_and_losses_are_those_of_a_run(keys, tmp_path):
    task = bert_jax.open_task("classify", **keys)
    params, losses = task.initial_params(), jax.jit(task.losses)
    batches = list(task.batches())
    assert len(batches) == task.steps > 1
    measured = [losses(params, batch)["classify_loss"] for batch in batches]
    run = bert_jax.train("classify", workdir=tmp_path / "run", **keys)  # whose rate changes next to nothing
    logged = [line["loss"] for line in run.metrics if line["kind"] == "train"]
    np.testing.assert_allclose(measured, logged, rtol=1e-5)
    np.testing.assert_array_equal(next(task.batches(1, 2))["input_ids"], batches[1]["input_ids"])
    key = jax.random.key(0)
    assert task.losses(params, batches[0], key) == task.losses(
        params, batches[0]
    )  # no dropout in this config


@pytest.mark.slow
def test_a_saved_model_is_that_of_the_parameters(keys, tmp_path):
    task = bert_jax.open_task("classify", **keys)
    params = task.initial_params()
    params["classify"]["dense"]["bias"] = np.array([-5.0, 5.0], np.float32)
    task.save(tmp_path / "model", params)
    assert set(bert_jax.Classifier.load(tmp_path / "model").predict(["a", "b c"])) == {"good"}
