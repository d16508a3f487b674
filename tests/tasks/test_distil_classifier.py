"""Distillation of a classifier's soft labels, with and without labels of the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.command import train as run
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.inference.load import load
from bert_jax.losses.distillation import soft_binary_cross_entropy, soft_cross_entropy
from bert_jax.predictions.kind import KINDS
from bert_jax.tasks import load_config as load_task
from bert_jax.tasks.distil_classifier import soft_loss
from tests.support.distillation_runs import distil_settings
from tests.support.pretraining_runs import assert_resumes, logged_metrics
from tests.support.tables import write_csv, write_texts_csv
from tests.support.texts import marked_texts

pytestmark = pytest.mark.usefixtures("shared_steps")

RNG = np.random.default_rng(0)
LOGITS, TAUGHT = RNG.normal(size=(2, 6, 5, 4)).astype(np.float32)
WEIGHT = np.float32(RNG.random((6, 5)) < 0.7)


def softly_in_torch(ours, theirs, temperature):
    functional = pytest.importorskip("torch").nn.functional
    ours, theirs = (ours / temperature).log_softmax(-1), (theirs / temperature).softmax(-1)
    return temperature**2 * functional.kl_div(ours, theirs, reduction="none").sum(-1)


def of_labels_in_torch(ours, theirs, temperature):
    functional = pytest.importorskip("torch").nn.functional
    kind, wanted = functional.binary_cross_entropy_with_logits, (theirs / temperature).sigmoid()
    entropy = kind(theirs / temperature, wanted, reduction="none")
    return temperature**2 * (kind(ours / temperature, wanted, reduction="none") - entropy).mean(-1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "expected"),
    [(soft_cross_entropy, softly_in_torch), (soft_binary_cross_entropy, of_labels_in_torch)],
)
def test_soft_losses_and_their_gradients_equal_those_of_torch(loss, expected):
    torch = pytest.importorskip("torch")
    ours, theirs, weight = map(torch.from_numpy, (LOGITS, TAUGHT, WEIGHT))
    ours.requires_grad_()
    wanted = (expected(ours, theirs, 3.0) * weight).sum() / weight.sum()
    wanted.backward()
    value, gradient = jax.value_and_grad(lambda x: loss(x, TAUGHT, WEIGHT, 3.0).mean)(jnp.asarray(LOGITS))
    assert float(value) == pytest.approx(wanted.item(), rel=1e-5)
    ours = ours.grad.numpy()
    assert np.abs(gradient - ours).max() <= 1e-4 * np.abs(ours).max()


def test_a_number_is_learnt_as_the_teacher_gives_it():
    kind = KINDS["number"](("LABEL_0",))
    loss = soft_loss(kind, jnp.array([[1.0], [3.0]]), jnp.array([[2.0], [3.0]]), jnp.ones(2), 2.0)
    assert float(loss.mean) == 0.5


def distil(workdir, *given, **changes):
    run.start_training("configs/distil.py:classifier", distil_settings(*given, **changes), str(workdir))
    return [line for line in logged_metrics(workdir) if line["kind"] == "validation"][-1]


@pytest.mark.ci
def test_a_student_agrees_with_its_teacher_on_texts_without_labels(teacher_path, tmp_path):
    train = write_texts_csv(tmp_path / "texts.csv", marked_texts(200, 3))
    last = distil(tmp_path / "whole", teacher_path, train)
    assert last["agreement"] > 0.9 and last["agreement"] == last["accuracy"], "labels are the teacher's"
    student, judged = load(tmp_path / "whole/model"), marked_texts(60, 7)
    assert student.config.num_hidden_layers == 1 and student.labels == load(teacher_path).labels == (
        "bad",
        "good",
    )
    predicted = [prediction.label for prediction in student.classify([text for text, _ in judged])]
    right = np.mean([label == true for label, (_, true) in zip(predicted, judged, strict=True)])
    assert right > 0.9
    assert (
        not (tmp_path / "whole/report").exists() and not (tmp_path / "whole/model/calibration.json").exists()
    )
    assert_resumes(lambda again: distil(again, teacher_path, train), tmp_path / "whole")


@pytest.mark.slow
def test_labels_that_are_there_are_what_scores_and_their_own_loss_are_of(teacher_path, tmp_path):
    # The teacher is right, and half of these labels are wrong.
    wrong = [(text, "good" if n % 2 else "bad") for n, (text, _) in enumerate(marked_texts(80, 4))]
    train = write_csv(tmp_path / "texts.csv", [*wrong, ("w0 w0 w0", "")])
    module, config = load_task(
        "configs/distil.py:classifier", distil_settings(teacher_path, train, labels_weight=0.25)
    )
    task, data, _ = module.open(config, ModelDirectories())
    labelled = [window.targets["labelled"] for window in [*data.train, *data.validation]]
    assert sum(labelled) < len(labelled) and set(labelled) == {0.0, 1.0}
    (batch,) = data.batches(0, 1, 0, 1)
    logits = RNG.normal(size=batch["teacher_logits"].shape).astype(np.float32)
    losses = task.losses({task.head: jnp.asarray(logits)}, batch)
    soft = soft_cross_entropy(logits, batch["teacher_logits"], batch["label_weights"], 2.0)
    hard = task.kind.targets.loss(logits, batch, batch["label_weights"] * batch["labelled"])
    assert float(losses["teacher_loss"].mean) == pytest.approx(0.75 * float(soft.mean))
    assert float(losses["label_loss"].mean) == pytest.approx(0.25 * float(hard.mean))
    scores = task.scores({task.head: jnp.asarray(batch["teacher_logits"])}, batch)
    assert float(scores["agreement"].mean) == 1 and 0.2 < float(scores["accuracy"].mean) < 0.8
