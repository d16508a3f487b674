"""Runs that train adapters alone: what they train, save and resume, on any mesh. Their outputs beside PEFT's are in
tests/hub/test_adapters.py."""

import dataclasses
import json
import shutil
import sys

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.command.export import export_checkpoint
from bert_jax.command.train import start_training
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.adapter import CONFIG, WEIGHTS
from bert_jax.hub.adapter_targets import AdapterConfig
from bert_jax.inference.load import load
from bert_jax.tasks import load_config
from bert_jax.training.adapters import join_params, merge_params, split_params
from bert_jax.training.memory_estimate import estimate_memory
from bert_jax.training.sharding import make_mesh, place_batches
from bert_jax.training.state import abstract_state, average_params, initial_state, make_constants
from bert_jax.training.step import make_step
from tests.support.adapters import random_adapter
from tests.support.cases import long_except
from tests.support.families import FAMILY_CONFIGS, write_released
from tests.support.finetuning_runs import assert_cut_off_ends_alike, finetune
from tests.support.made_up_language import WORDS
from tests.support.model_outputs import compute_outputs
from tests.support.processes import run_on_eight_devices
from tests.support.small_models import write_model
from tests.support.tables import write_csv
from tests.support.texts import marked_texts, random_texts
from tests.support.tiny_pretraining import Batches, tiny_pretraining

STEPS = 20
ADAPTERS = ("adapter.rank=4", "adapter.alpha=8")
ONE, CUBE = "one device", "2 x 2 x 2, 4 microbatches"
MESHES = {
    ONE: (1, {}),
    CUBE: (8, {"fsdp": 2, "tensor": 2, "gradient_accumulation_steps": 4}),
    "data 8, in parts": (8, {"shard_optimizer": True}),
}


def losses_on(devices: int, changes: dict) -> list[float]:
    """Losses of steps with dropout everywhere; the head of the next sentence is trained whole."""
    task, config = tiny_pretraining(STEPS, layers=2, **changes)
    own = AdapterConfig(rank=4, dropout=0.2, use_dora=True)
    config = dataclasses.replace(config, init="made up", adapter=own)
    mesh = make_mesh(config.mesh, jax.devices()[:devices])
    whole = jax.device_get(jax.jit(task.init)(jax.random.key(5, impl="threefry2x32")))
    state, constants = initial_state(task, config, mesh, whole), make_constants(task, config, mesh, whole)
    assert set(state.params) == {"adapters", "nsp", "pooler"} and set(constants.frozen) == {"encoder", "mlm"}
    step, data, losses = make_step(task, config, mesh), Batches(), []
    for batch in place_batches(data.batches(0, STEPS, 0, 1), mesh, data.rows_per_step):
        state, measured = step(state, batch, constants)
        losses.append(float(sum(loss.mean for loss in measured["losses"].values())))
    return losses


@pytest.mark.ci
@pytest.mark.parametrize("mesh", long_except(list(MESHES)[1:], [CUBE]))
def test_meshes_give_the_same_losses(mesh):
    found = run_on_eight_devices(__name__, ONE, mesh)
    one = found[ONE]
    assert np.mean(one[-3:]) < np.mean(one[:3]) - 0.01
    np.testing.assert_allclose(found[mesh], one, rtol=1e-5)


@pytest.mark.slow
def test_dropout_of_adapters_depends_on_the_key_and_the_row(tmp_path):
    write_model(tmp_path / "base")
    task, config, trained, frozen = random_adapter(
        tmp_path / "base", "tag", ("O", "B-X"), rank=4, dropout=0.5
    )
    batch = {
        "input_ids": np.full((3, 5), 6),
        "attention_mask": np.ones((3, 5), int),
        "token_type_ids": np.zeros((3, 5), int),
    }

    def outputs(key=None, rows=(0, 1, 2)):
        params = join_params(task, config.adapter, trained, frozen, np.array(rows), key)
        return compute_outputs(task.layout, batch, params)["hidden"]

    plain, one, other = outputs(), outputs(jax.random.key(1)), outputs(jax.random.key(2))
    assert np.abs(plain - plain[:1]).max() == 0 and np.abs(one - plain).max() > 0.01
    assert np.abs(one - other).max() > 0.01 and np.abs(one[0] - one[1]).max() > 0.01
    np.testing.assert_array_equal(outputs(jax.random.key(1), (2, 1, 0)), one[::-1])
    layers = join_params(task, config.adapter, trained, frozen, np.arange(3), jax.random.key(1))["encoder"][
        "layers"
    ]
    keys = jax.random.key_data(layers["feed_forward"]["in"]["kernel"].dropout_key)
    assert len({tuple(key) for key in keys.tolist()}) == len(keys) == 2, "each layer has its own"


@pytest.mark.slow
def test_projections_of_distances_have_no_dropout(tmp_path):
    """They are of no row."""
    write_released(
        tmp_path / "base", "deberta-v2", FAMILY_CONFIGS["deberta-v2"] | {"vocab_size": 12}, ("mlm",)
    )
    task, config, trained, frozen = random_adapter(
        tmp_path / "base", "tag", ("O", "B-X"), rank=2, dropout=0.5
    )
    batch = {"input_ids": np.full((3, 5), 6), "attention_mask": np.ones((3, 5), int)}
    params = join_params(task, config.adapter, trained, frozen, np.arange(3), jax.random.key(1))
    hidden = compute_outputs(task.layout, batch, params)["hidden"]
    assert np.isfinite(hidden).all() and np.abs(hidden[0] - hidden[1]).max() > 1e-4


@pytest.mark.slow
def test_the_mean_with_the_start_has_a_share_of_what_was_learnt(tmp_path):
    write_model(tmp_path / "base")
    task, config, trained, frozen = random_adapter(tmp_path / "base", "tag", ("O", "B-X"), rank=2)
    start = split_params(
        task, config, frozen | {name: part for name, part in trained.items() if name != "adapters"}
    )[0]
    mean = average_params(start, trained, 0.25)
    before, after, between = (
        merge_params(task, config.adapter, params, frozen)["encoder"]["layers"]["attention"]["qkv"]["kernel"]
        for params in (start, trained, mean)
    )
    assert np.abs(after - before).max() > 0.01
    np.testing.assert_allclose(between, 0.25 * before + 0.75 * after, atol=1e-6)


# Objectives


def tagged(path) -> str:
    texts = [
        [f"{word} {'B-X' if word in WORDS[::3] else 'O'}" for word in text.split()]
        for text in random_texts(40)
    ]
    path.write_text("\n\n".join(map("\n".join, texts)))
    return str(path)


def asked(path) -> str:
    texts = [text for text in random_texts(40) if len(text.split()) > 2]
    pieces = [
        {
            "context": text,
            "qas": [
                {"id": str(n), "question": "w1", "answers": [{"answer_start": 0, "text": text.split()[0]}]}
            ],
        }
        for n, text in enumerate(texts)
    ]
    path.write_text(
        json.dumps({"data": [{"title": str(n), "paragraphs": [piece]} for n, piece in enumerate(pieces)]})
    )
    return str(path)


def paired(path) -> str:
    texts = random_texts(80)
    return str(write_csv(path, list(zip(texts[::2], texts[1::2], strict=True)), ("anchor", "positive")))


def ranked(path) -> str:
    rows = [
        (text, other, n % 2)
        for n, (text, other) in enumerate(zip(random_texts(40), random_texts(80)[40:], strict=True))
    ]
    return str(write_csv(path, rows, ("query", "document", "label")))


OBJECTIVES = {
    "classify": lambda path: str(write_csv(path, marked_texts(48, 0))),
    "tag": tagged, "answer": asked, "embed": paired, "sparse": paired, "rerank": ranked, "late_interaction": paired,
}  # fmt: skip


# The head of a classifier is that of a reranker, and is trained in the next test; sparse vectors have none, as others.
@pytest.mark.ci
@pytest.mark.parametrize("task", long_except(OBJECTIVES, ("tag", "answer", "embed")))
def test_a_run_saves_its_adapters_and_the_trained_head(task, tmp_path, encoder_path):
    suffix = {"tag": ".conll", "answer": ".json"}.get(task, ".csv")
    run(task, tmp_path / "run", encoder_path, OBJECTIVES[task](tmp_path / f"train{suffix}"), *ADAPTERS)
    made = tmp_path / "run/model"
    assert not (made / "model.safetensors").exists()
    names = set(load_file(made / WEIGHTS))
    adapted = {name for name in names if ".lora_" in name}
    head = {name for name in names - adapted if not name.startswith("base_model.model.pooler")}
    assert len(adapted) == 12 * 1, "six layers in each of the encoder's layers"
    heads = {"classify": "classifier", "tag": "classifier", "answer": "qa_outputs", "rerank": "classifier"}
    assert {name.split(".")[2] for name in head} - {"bert"} == ({heads[task]} if task in heads else set())
    assert json.loads((made / CONFIG).read_text())["base_model_name_or_path"] == str(encoder_path.resolve())
    # What is opened is what was trained: the encoder has changed, and only by products of the rank.
    ours, base = load(made), load(encoder_path)
    change = np.asarray(ours.params["encoder"]["layers"]["feed_forward"]["in"]["kernel"]) - np.asarray(
        base.params["encoder"]["layers"]["feed_forward"]["in"]["kernel"]
    )
    assert np.linalg.matrix_rank(change[0], tol=1e-6) == 4
    for name in ("words", "positions"):
        same = (model.params["encoder"]["embeddings"][name] for model in (ours, base))
        np.testing.assert_array_equal(*map(np.asarray, same))


def run(task: str, workdir, init, train: str, *overrides: str) -> None:
    overlap = {"tag": ["data.overlap=8"], "answer": ["data.overlap=8"]}.get(task, [])
    settings = [f"init={init}", f"data.train={train}", "data.max_length=32", "epochs=2", *overlap]
    if task not in ("embed", "sparse", "rerank", "late_interaction"):
        # By a head that has much to learn, so that the start is not the best.
        settings += ["data.folds=0", "head_init=pretrained", f"checkpoints.best_metric={task}_loss"]
    if task == "late_interaction":  # its ranking is best before training
        settings += ["checkpoints.best_metric=embedding_loss"]
    start_training(f"configs/{task}.py", [*settings, *overrides], str(workdir))


@pytest.mark.ci
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(tmp_path, encoder_path):
    given = {
        "data.train": write_csv(tmp_path / "t.csv", marked_texts(24, 0)), "epochs": 4, "adapter.dropout": 0.1,
        "adapter.use_dora": True, "head_init": "linear_probe", "checkpoints.every": 3, "checkpoints.keep": 20,
    }  # fmt: skip
    given |= {"adapter.rank": 4}
    assert_cut_off_ends_alike("classify", encoder_path, tmp_path, WEIGHTS, **given)
    # A checkpoint is exported as a whole model. One of them is what the run kept.
    kept, exported = load(tmp_path / "whole/model").params, []
    for step in sorted(int(path.name) for path in (tmp_path / "whole/checkpoints").iterdir()):
        export_checkpoint(str(tmp_path / "whole"), str(tmp_path / f"exported {step}"), step)
        exported.append(load(tmp_path / f"exported {step}").params)
    differences = [
        max(np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (params, kept)), strict=True))
        for params in exported
    ]
    assert min(differences) < 1e-6 < max(differences)
    with pytest.raises(BertJaxError, match="was started with other settings: adapter.rank was 4 and is 8"):
        finetune("classify", encoder_path, tmp_path / "cut", **given | {"adapter.rank": 8})
    base = tmp_path / "base"
    shutil.copytree(encoder_path, base)
    finetune("classify", base, tmp_path / "on another", **given | {"steps": 1})
    weights = load_file(base / "model.safetensors")
    save_file({name: weight + 1 for name, weight in weights.items()}, base / "model.safetensors")
    with pytest.raises(BertJaxError, match="other settings: init_fingerprint was"):
        finetune("classify", base, tmp_path / "on another", **given)
    with pytest.raises(BertJaxError, match="base has changed since the run .*on another began; put it back"):
        export_checkpoint(str(tmp_path / "on another"), str(tmp_path / "exported"))


def test_the_estimate_of_memory_falls_with_what_is_trained():
    task, config = tiny_pretraining(layers=2)
    mesh, needed = make_mesh(config.mesh, jax.devices()[:1]), {}
    for rank in (0, 4):
        config = dataclasses.replace(config, init="made up", adapter=AdapterConfig(rank=rank))
        needed[rank] = estimate_memory(task, Batches(), config, mesh, abstract_state(task, config, mesh))
    count = 4 * sum(leaf.size for leaf in jax.tree.leaves(needed[0].abstract.params))
    own = 4 * sum(leaf.size for leaf in jax.tree.leaves(needed[4].abstract.params))
    # Parameters, gradients and two moments; of frozen parameters, themselves.
    assert needed[0].state == pytest.approx(4 * count, rel=1e-3)
    assert needed[4].state == pytest.approx(device_size(needed[4].frozen) + 4 * own, rel=1e-3)
    assert needed[4].state < needed[0].state / 2


def device_size(tree) -> int:
    return 4 * sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.slow
def test_a_loop_of_ones_own_trains_adapters(tmp_path, encoder_path):
    data = {"train": str(write_csv(tmp_path / "t.csv", marked_texts(24, 0))), "folds": 0, "max_length": 32}
    task = bert_jax.open_task("classify", init=str(encoder_path), data=data, steps=2, adapter={"rank": 2})
    params, batch = task.initial_params(), next(task.batches())
    assert set(params) == {"adapters", "classify", "pooler"}
    gradients = jax.jit(jax.grad(lambda params: sum(task.losses(params, batch).values())))(params)
    assert all(np.abs(leaf).max() > 0 for name, leaf in flatten_dict(gradients).items() if name[-1] == "b")
    task.save(tmp_path / "model", jax.tree.map(lambda p, g: p - g, params, gradients))
    assert (tmp_path / "model" / WEIGHTS).is_file()
    load(tmp_path / "model").predict("w1 w2")


REFUSED = {
    "no start": (
        "pretrain",
        ["adapter.rank=4", "data.corpora=('c',)"],
        "adapter.rank needs one to start from",
    ),
    "frozen layers": (
        "classify",
        ["adapter.rank=4", "optimizer.frozen_layers=1"],
        "leave them out beside adapter.rank",
    ),
    "no layer": ("classify", ["adapter.rank=4", "adapter.target_modules=('nothing',)"], "matches no layer"),
    "no pattern": (
        "classify",
        ["adapter.rank=4", "adapter.target_modules=('(',)"],
        "is not a regular expression",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_cannot_be_trained_is_said_in_one_line(fault, tmp_path, encoder_path):
    task, overrides, message = REFUSED[fault]
    train = str(write_csv(tmp_path / "t.csv", marked_texts(24, 0)))
    with pytest.raises(BertJaxError, match=message) as error:
        if task == "pretrain":
            load_config(f"configs/{task}.py", overrides)
        else:
            run(task, tmp_path / "run", encoder_path, train, *overrides)
    assert "\n" not in str(error.value)


if __name__ == "__main__":
    json.dump({name: losses_on(*MESHES[name]) for name in sys.argv[1:]}, sys.stdout)
