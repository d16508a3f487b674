"""Fine-tuning by contrast: texts of one class are brought together, and the head is a probe."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.command import train as run
from bert_jax.finetuning.finetune_task import VECTORS, FinetuneTask
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.inference.load import load
from bert_jax.losses.loss import pair_error
from bert_jax.tasks import load_config as load_task
from bert_jax.training import warm_start
from tests.support.tables import write_csv
from tests.support.texts import marked_texts

SHORT = (
    "optimizer.learning_rate=3e-3",
    "data.max_length=32",
    "data.batch_size=16",
    "log.every=5",
    "report=False",
)


def open_task(overrides):
    module, config = load_task("configs/classify.py", overrides)
    return module.open(config, ModelDirectories())


@pytest.mark.slow
def test_pairs_are_judged_one_by_one():
    rng = np.random.default_rng(0)
    vectors, labels, weight = (
        rng.normal(size=(7, 5)),
        rng.integers(0, 3, 7),
        np.array([1, 1, 0.5, 1, 0, 1, 1]),
    )
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    same, other = [], []
    for i in range(7):
        for j in range(7):
            if i != j and weight[i] and weight[j]:
                pair = same if labels[i] == labels[j] else other
                pair.append((unit[i] @ unit[j] - (labels[i] == labels[j])) ** 2)
    expected = (np.mean(same) + np.mean(other)) / 2
    np.testing.assert_allclose(
        pair_error(*map(jnp.asarray, (vectors, labels, weight))).mean, expected, rtol=1e-5
    )
    packed = (x.reshape(1, 7, *x.shape[1:]) for x in (vectors, labels, weight))
    np.testing.assert_allclose(pair_error(*map(jnp.asarray, packed)).mean, expected, rtol=1e-5)


@pytest.mark.slow
def test_nothing_to_compare_has_a_slope_of_nothing():
    slope = jax.grad(lambda vectors: pair_error(vectors, jnp.zeros(3, int), jnp.array([1.0, 0, 0])).mean)
    assert not slope(jnp.zeros((3, 4))).any()


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "pooling"), [("packed", "mean"), ("padded", "cls")])
def test_vectors_are_what_the_head_reads(encoder_path, tmp_path, rows, pooling):
    train = write_csv(tmp_path / "train.csv", marked_texts(40, 0))
    overrides = [f"init={encoder_path}", f"data.train={train}", "method=contrastive", "data.folds=0",
                 f"data.batching={rows}",
                 f"model.pooling={pooling}", *SHORT]  # fmt: skip
    task, data, config = open_task(overrides)
    params, _ = warm_start.read_initial_params(ModelDirectories(), config.init, task, 0)
    classes = [data.train[i].targets["labels"] for i in data.chosen[0]]
    assert classes[::2] == classes[1::2] and len(set(classes)) == 2, "pairs of a class"
    batch = next(data.batches(0, 1, 0, 1))
    dense = params[task.head]["dense"]
    of_vectors = task.outputs(params, batch)[VECTORS] @ dense["kernel"] + dense["bias"]
    np.testing.assert_allclose(of_vectors, FinetuneTask.outputs(task, params, batch)[task.head], atol=1e-5)


@pytest.mark.ci
def test_texts_of_a_class_come_together_and_the_head_fits_them(encoder_path, tmp_path):
    train, others = marked_texts(300, 0), marked_texts(60, 1)
    overrides = [f"init={encoder_path}", f"data.train={write_csv(tmp_path / 'train.csv', train)}", "steps=80",
                 "method=contrastive", "data.folds=0", "model.pooling=mean",
                 "data.batching=padded", *SHORT]  # fmt: skip
    run.start_training("configs/classify.py", overrides, str(tmp_path / "run"))
    before, after = load(encoder_path), load(tmp_path / "run/model")

    def apart(model) -> float:
        """How much nearer two texts of a class are than two of different ones."""
        vectors = model.encode([text for text, _ in others], normalize_embeddings=True)
        labels = np.array([label for _, label in others])
        cosines, same = vectors @ vectors.T, labels[:, None] == labels
        return cosines[same & ~np.eye(60, dtype=bool)].mean() - cosines[~same].mean()

    assert apart(after) > apart(before) + 0.2
    found = after.classify([text for text, _ in others])
    assert np.mean([a.label == label for a, (_, label) in zip(found, others, strict=True)]) > 0.8


def test_it_takes_fewer_steps_at_a_higher_learning_rate():
    def config(*more: str):
        return load_task(
            "configs/classify.py", ["init=model", "data.train=x.csv", "method=contrastive", *more]
        )[1]

    def rate(width: int, *more: str) -> float:
        return config(*more).choose_learning_rate(width, 100)

    np.testing.assert_allclose([rate(384), rate(768), rate(64)], [1.5e-4, 7.5e-5, 3e-4])
    np.testing.assert_allclose(rate(384, "method=finetune"), 6e-5)
    assert rate(384, "optimizer.learning_rate=2e-5") == 2e-5
    assert [config().num_steps(texts) for texts in (16, 320, 640)] == [30, 30, 60]
    assert config("method=finetune").num_steps(16) == 60
    assert (config("steps=5").num_steps(16), config("epochs=2").num_steps(320)) == (5, 20)
