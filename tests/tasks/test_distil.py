"""Distillation from text without labels: losses and gradients beside torch, and whole runs."""

import json

import jax
import numpy as np
import pytest

from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import model_directory as hub
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.inference.load import load
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.tasks import load_config as load_task
from bert_jax.tasks.distil import OBJECTIVES, DistillationLossConfig
from bert_jax.text.wordpiece import WordPiece
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from bert_jax.training.task import Task
from tests.support.cases import long_except
from tests.support.made_up_language import ENTRIES
from tests.support.optional_modules import torch
from tests.support.parity import fill_gradients
from tests.support.pretraining_runs import assert_resumes, checkpoint_arrays, make_corpus
from tests.support.project import ROOT
from tests.support.seeded_arrays import seeded_batch
from tests.support.transformers_models import (
    assert_gradients_close,
    save_transformers_model,
    transformers_inputs,
    transformers_mlm_labels,
)

pytestmark = pytest.mark.usefixtures("shared_steps")

SIZES = {
    "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 80, "vocab_size": 101, "num_hidden_layers": 4,
    "type_vocab_size": 2, "max_position_embeddings": 40,
}  # fmt: skip
STUDENTS = {
    "distilbert": {"num_hidden_layers": 2},
    "minilm": {"num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 40},
    "tinybert": {"num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 40},
}
TEACHER = EncoderConfig(
    vocab_size=len(ENTRIES),
    hidden_size=32,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=40,
)


def distilbert_in_torch(student, teacher, batch):
    mask, labels = torch.from_numpy(batch["attention_mask"]) > 0, transformers_mlm_labels(batch)
    asked = {**transformers_inputs(batch), "output_hidden_states": True}
    ours, theirs = student(**asked, labels=labels), teacher(**asked)
    # The batch names a place more than once where it has few: each naming counts.
    places = torch.from_numpy(batch["target_positions"])[..., None]
    weight = torch.from_numpy(batch["target_weights"])
    logits = [torch.take_along_dim(answer.logits, places, dim=1) for answer in (ours, theirs)]
    divergence = torch.nn.functional.kl_div(
        (logits[0] / 2).log_softmax(-1), (logits[1] / 2).softmax(-1), reduction="none"
    ).sum(-1)
    soft = 4 * (divergence * weight).sum() / weight.sum()
    states = [answer.hidden_states[-1][mask] for answer in (ours, theirs)]
    cosine = torch.nn.functional.cosine_embedding_loss(*states, torch.ones(len(states[0])))
    return {"soft_part": 5 * soft, "mlm_part": 2 * ours.loss, "cosine_part": cosine}


def of_layers_in_torch(model, batch):
    """(states of every layer, queries, keys and values of every layer [B, L, D])"""
    found = []
    for layer in model.encoder.layer:
        for name in ("query", "key", "value"):
            getattr(layer.attention.self, name).register_forward_hook(lambda *call: found.append(call[2]))
    states = model(**transformers_inputs(batch), output_hidden_states=True).hidden_states
    return states, [found[n : n + 3] for n in range(0, len(found), 3)]


def minilm_in_torch(student, teacher, batch):
    (_, ours), (_, theirs) = (of_layers_in_torch(model, batch) for model in (student, teacher))
    total = 0.0
    for of_student, of_teacher in zip(ours[-1], theirs[-1], strict=True):
        for row, count in enumerate(batch["attention_mask"].sum(1)):
            relations = []
            for states in (of_student, of_teacher):
                heads = states[row, :count].reshape(count, RELATION_HEADS, -1).transpose(0, 1)
                relations.append(heads @ heads.transpose(1, 2) / heads.shape[-1] ** 0.5)
            divergence = torch.nn.functional.kl_div(
                relations[0].log_softmax(-1), relations[1].softmax(-1), reduction="sum"
            )
            total = total + divergence / RELATION_HEADS
    return {"relation_loss": total / batch["attention_mask"].sum()}


def tinybert_in_torch(student, teacher, batch, to_embeddings, to_states):
    (states, ours), (taught, theirs) = (of_layers_in_torch(model, batch) for model in (student, teacher))
    mask = torch.from_numpy(batch["attention_mask"]) > 0
    error, counts = torch.nn.functional.mse_loss, batch["attention_mask"].sum(1)

    def scores(qkv):
        q, k, _ = (x.reshape(*x.shape[:2], 4, -1).transpose(1, 2) for x in qkv)
        whole = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        return torch.cat([whole[row, :, :n, :n].reshape(-1) for row, n in enumerate(counts)])

    return {
        "embeddings_loss": error((states[0] @ to_embeddings)[mask], taught[0][mask]),
        "states_loss": sum(
            error((states[layer] @ to_states)[mask], taught[2 * layer][mask]) for layer in (1, 2)
        ),
        "scores_loss": sum(error(scores(ours[n]), scores(theirs[2 * n + 1])) for n in (0, 1)),
    }


IN_TORCH = {"distilbert": distilbert_in_torch, "minilm": minilm_in_torch, "tinybert": tinybert_in_torch}
RELATION_HEADS = 12


@pytest.mark.slow
@pytest.mark.parametrize("objective", STUDENTS)
def test_losses_and_gradients_equal_those_of_torch(objective, tmp_path):
    kind = "BertForMaskedLM" if OBJECTIVES[objective].heads else "BertModel"
    teacher = save_transformers_model(kind, tmp_path / "teacher", seed=1, **SIZES)
    student = save_transformers_model(kind, tmp_path / "student", seed=2, **SIZES | STUDENTS[objective])
    ours, theirs = (load(tmp_path / name, tokenizer=False) for name in ("student", "teacher"))
    task = OBJECTIVES[objective](
        ours.layout,
        teacher=theirs.layout,
        teacher_params=theirs.params,
        settings=DistillationLossConfig(relation_heads=RELATION_HEADS),
    )
    task.check_teacher()
    batch = seeded_batch(3, 19, 101, 2, targets=4, seed=1)
    params = jax.jit(task.init)(jax.random.key(0)) | ours.params
    beside = {
        name: torch.from_numpy(np.array(part["dense"]["kernel"])).requires_grad_()
        for name, part in params.items()
        if name not in ours.params
    }

    def total(params, constants):
        losses = task.losses(task.outputs(params, batch, constants), batch)
        return sum(loss.mean for loss in losses.values()), losses

    run = jax.jit(jax.value_and_grad(total, has_aux=True))
    (_, losses), gradients = run(params, task.constants())
    parts = IN_TORCH[objective](student, teacher, batch, **beside)
    assert losses.keys() == parts.keys()
    for name, part in parts.items():
        assert part.item() > 1e-3
        assert float(losses[name].mean) == pytest.approx(part.item(), rel=1e-5), name
    sum(parts.values()).backward()
    assert_gradients_close(to_hf_tensors(task.layout, gradients), fill_gradients(student))
    for name, kernel in beside.items():
        theirs = kernel.grad.numpy()
        assert np.abs(gradients[name]["dense"]["kernel"] - theirs).max() <= 1e-4 * np.abs(theirs).max()


OWN = {
    "distilbert": {},
    "minilm": {"model.hidden_size": 16, "model.num_hidden_layers": 2, "loss.relation_heads": 8},
    "tinybert": {"model.hidden_size": 16, "model.num_hidden_layers": 2, "model.intermediate_size": 32},
}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A model directory with initial values, and a corpus for it."""
    root = tmp_path_factory.mktemp("teacher")
    layout = hub.Layout(TEACHER, heads=("mlm", "nsp"))
    params = jax.jit(lambda: init_random_params(Task(layout), RunConfig(seed=1)))()
    hub.save_model(root / "model", layout, jax.device_get(params), WordPiece.from_vocabulary(ENTRIES))
    return root / "model", make_corpus(root)


def words(teacher, objective="distilbert", **changes):
    directory, corpus = teacher
    values = {
        "teacher": directory, "data.corpora": corpus, "steps": 6, "data.batch_size": 8, "data.lengths": 24,
        "data.dupe_factor": 1, "log.every": 1, "log.evaluate_every": 3, "log.max_eval_batches": 2,
        "checkpoints.every": 3, "optimizer.learning_rate": 3e-3, "optimizer.warmup_steps": 2,
    } | OWN[objective] | changes  # fmt: skip
    settings = [f"--config.{key}={value}" for key, value in values.items()]
    return ["train", "--config", f"{ROOT}/configs/distil.py:{objective}", *settings]


def opened(teacher, objective="distilbert", **changes):
    module, config = load_task(
        f"{ROOT}/configs/distil.py:{objective}",
        [word.removeprefix("--config.") for word in words(teacher, objective, **changes)[3:]],
    )
    return module.open(config, ModelDirectories())


@pytest.mark.ci
@pytest.mark.parametrize("objective", long_except(STUDENTS, ["tinybert"]))  # it also learns projections
def test_a_run_is_resumed_bit_for_bit_and_leaves_the_student(teacher, objective, tmp_path):
    def train(workdir):
        assert main([*words(teacher, objective), "--workdir", str(workdir)]) == 0

    whole = tmp_path / "whole"
    train(whole)
    assert_resumes(train, whole)
    assert not [name for name in checkpoint_arrays(whole / "checkpoints/6") if "teacher" in name]
    student = load(whole / "model")
    assert student.config.num_hidden_layers == 2 and student.layout.heads == OBJECTIVES[objective].heads
    assert json.loads((whole / "model/config.json").read_text())["num_hidden_layers"] == 2


@pytest.mark.slow
def test_a_student_begins_as_layers_of_its_teacher(teacher):
    task, data, config = opened(teacher)
    assert config.init == config.teacher and task.layout.config.num_hidden_layers == 2
    whole = load(teacher[0]).params
    params = task.initial_params(whole, data, 1)
    ours, theirs = (tree["encoder"]["layers"]["attention"]["qkv"]["kernel"] for tree in (params, whole))
    np.testing.assert_array_equal(ours, theirs[np.array([0, 3])])
    assert params["mlm"] is whole["mlm"]
    narrow = opened(teacher, **{"model.hidden_size": 16, "loss.cosine": 0})
    assert narrow[2].init == "" and narrow[0].layout.config.intermediate_size == 32


@pytest.mark.slow
def test_scores_of_attention_have_a_weight(teacher):
    """Without one they are not compared, and heads may differ."""

    def losses(**changes):
        task, data, _ = opened(teacher, "tinybert", **changes)
        batch = next(data.batches(0, 1, 0, 1))
        params = jax.jit(task.init)(jax.random.key(3))
        return jax.jit(lambda: task.losses(task.outputs(params, batch, task.constants()), batch))()

    whole, half, without = (losses(**{"loss.scores": weight}) for weight in (1, 0.5, 0))
    assert whole.keys() == half.keys() == {*without, "scores_loss"}
    for name, loss in without.items():
        np.testing.assert_allclose(loss.mean, whole[name].mean, rtol=1e-6)
    np.testing.assert_allclose(half["scores_loss"].mean, 0.5 * whole["scores_loss"].mean, rtol=1e-6)
    assert losses(**{"loss.scores": 0, "model.num_attention_heads": 2}).keys() == without.keys()


@pytest.mark.slow
def test_a_teacher_without_what_is_learnt_is_refused(teacher, tmp_path):
    directory, corpus = teacher
    load(directory, head="tag", labels=["a", "b"]).save(tmp_path / "tagger")
    with pytest.raises(BertJaxError, match='"mlm".*objective=distilbert'):
        opened((tmp_path / "tagger", corpus))
    with pytest.raises(BertJaxError, match="16.*32"):
        opened(teacher, **{"model.hidden_size": 16})
    with pytest.raises(BertJaxError, match="relation_heads=48"):
        opened(teacher, "minilm", **{"model.hidden_size": 24, "loss.relation_heads": 48})
    with pytest.raises(BertJaxError, match="--config.model.num_attention_heads=4.*--config.loss.scores=0"):
        opened(teacher, "tinybert", **{"model.num_attention_heads": 2})
    with pytest.raises(BertJaxError, match="--config.loss.teacher_layer=4"):
        opened(teacher, "minilm", **{"loss.teacher_layer": 9})
    for objective, name in (("distilbert", "teacher_layer"), ("tinybert", "cosine"), ("minilm", "scores")):
        with pytest.raises(
            BertJaxError, match=f"objective={objective} does not use loss.{name}; leave it out"
        ):
            opened(teacher, objective, **{f"loss.{name}": 9})
    with pytest.raises(BertJaxError, match="--config.model.num_hidden_layers=4"):
        opened(teacher, init=directory, **{"model.num_hidden_layers": 6})
    with pytest.raises(BertJaxError, match="data.lengths"):
        opened(teacher, **{"data.lengths": 48})
