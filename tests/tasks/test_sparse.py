"""Training a sparse embedder, from a table of texts to a directory that everybody opens."""

import json
import sys
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from bert_jax.command.main import main
from bert_jax.command.train import start_training
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import model_directory as hub
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.inference.load import load
from bert_jax.training.gradient import add_step, make_gradient
from bert_jax.training.log import validation_lines
from bert_jax.training.sharding import make_mesh, place_batches
from bert_jax.training.state import StepConstants, abstract_state, get_shardings
from bert_jax.training.warm_start import read_initial_params
from tests.support.cases import long_except
from tests.support.embedding_tasks import SPARSE_CONFIG, open_sparse_task, random_pairs
from tests.support.gradients import assert_gradients_equal
from tests.support.pretraining_runs import assert_resumes
from tests.support.processes import run_on_eight_devices
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts

pytestmark = pytest.mark.usefixtures("shared_steps")

# So that they matter beside the loss of a model with initial values.
REGULARIZERS = ("loss.document_regularizer_weight=0.03", "loss.query_regularizer_weight=0.05")
STILL = ("model.hidden_dropout_prob=0.0", "model.attention_probs_dropout_prob=0.0")
ONE, PARTS = "one device", "data 4, in parts"
MESHES = {ONE: {}, PARTS: {"data": 4, "gradient_accumulation_steps": 2}, "data 8": {},
          "2 x 2 x 2": {"fsdp": 2, "tensor": 2}, "split": {"shard_optimizer": True}}  # fmt: skip


def compute_gradient(model, train, *overrides, devices: int = 1, **mesh_settings):
    """The losses, and the gradients of all parameters, in the step after the warm-up of a run of 12."""
    given = ("data.batch_size=24", "steps=12", *REGULARIZERS, *overrides)
    task, data, config = open_sparse_task(model, train, *given)
    config = replace(config, mesh=replace(config.mesh, **mesh_settings))
    mesh = make_mesh(config.mesh, jax.devices()[:devices])
    shardings = get_shardings(abstract_state(task, config, mesh)).params
    params, _ = read_initial_params(ModelDirectories(), str(model), task, 0)
    params = jax.device_put(params, shardings)
    batch = next(place_batches(data.batches(0, 1, 0, 1), mesh, data.rows_per_step))
    gradient = make_gradient(task, config, mesh, shardings)
    gradients, measured = jax.jit(
        lambda *given: gradient(params, add_step(batch, 12), jax.random.key(3), StepConstants(0, 0, {}))
    )()
    losses = {name: float(loss.mean) for name, loss in measured["losses"].items()}
    return losses, jax.device_get(gradients), batch["input_ids"].shape


@pytest.mark.ci
def test_packed_and_bucketed_rows_and_a_batch_in_parts_have_the_same_losses_and_gradients(
    encoder_path, tmp_path
):
    rows = [
        row | {"worse": text} for row, text in zip(random_pairs(60), random_texts(60, (2, 9), 5), strict=True)
    ]
    train = write_jsonl(tmp_path / "triplets.jsonl", rows)
    of = partial(compute_gradient, encoder_path, train, *STILL, "model.query_weights=learned")
    losses, gradients, shape = of("data.batching=bucketed")
    assert set(losses) == {"embedding_loss", "document_regularizer_loss", "query_regularizer_loss"}
    assert np.abs(gradients["query_weights"]["weight"]).max() > 1e-3
    for overrides, parts in (("data.batching=packed", 1), ("data.batching=bucketed", 6)):
        others, its, other_shape = of(overrides, gradient_accumulation_steps=parts)
        assert (shape == other_shape) is (parts > 1), "or both are the same computation"
        assert others == pytest.approx(losses, rel=1e-5)
        assert_gradients_equal(its, gradients, 1e-5)


@pytest.mark.ci
@pytest.mark.parametrize("mesh", long_except(list(MESHES)[1:], [PARTS]))
def test_every_mesh_has_the_same_losses_and_gradients(mesh, encoder_path, tmp_path):
    """With dropout; the regularizers are means over all texts of the batch. In CI, several devices and a batch in
    parts; tests/training/test_whole_batch_loss.py has the other meshes for a loss of the whole batch."""
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(60))
    expected, (losses, gradients) = run_on_eight_devices(
        "tests.tasks.test_sparse", str(encoder_path), train, ONE, mesh
    )
    assert losses == pytest.approx(expected[0], rel=1e-5)
    scale = max(expected[1].values())
    assert gradients == pytest.approx(expected[1], abs=1e-5 * scale, rel=1e-4)


def print_meshes(model, train, *meshes) -> None:
    of = partial(compute_gradient, model, train, "data.batching=bucketed", "model.query_weights=learned")
    found = []
    for name in meshes:
        settings = MESHES[name]
        devices = 1 if name == ONE else settings.get("data", 8)
        losses, gradients, _ = of(devices=devices, **settings)
        leaves = jax.tree_util.tree_leaves_with_path(gradients)
        found.append(
            (losses, {jax.tree_util.keystr(path): float(np.abs(leaf).max()) for path, leaf in leaves})
        )
    print(json.dumps(found))


@pytest.mark.ci
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(encoder_path, tmp_path):
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(60))
    overrides = [
        f"init={encoder_path}", f"data.train={train}", "data.max_length=24", "steps=6", "data.batch_size=16",
        "mesh.gradient_accumulation_steps=2", "model.hidden_dropout_prob=0.1", "checkpoints.every=3",
        "checkpoints.keep=9", "log.evaluate_every=3", "log.every=1", "model.query_weights=learned", *REGULARIZERS,
    ]  # fmt: skip
    run = partial(start_training, SPARSE_CONFIG, overrides)
    run(str(tmp_path / "whole"))
    assert_resumes(lambda again: run(str(again)), tmp_path / "whole")


@pytest.mark.slow
def test_a_run_finds_more_with_fewer_entries_and_its_model_opens_everywhere(encoder_path, tmp_path):
    train, validation = (
        write_jsonl(tmp_path / f"{count}.jsonl", random_pairs(count, seed=count)) for count in (270, 40)
    )
    overrides = [
        f"init={encoder_path}", f"data.train={train}", f"data.validation={validation}", "data.max_length=24",
        "epochs=8", "data.batch_size=30", "optimizer.learning_rate=1e-2", *STILL, *REGULARIZERS,
    ]  # fmt: skip
    start_training(SPARSE_CONFIG, overrides, str(tmp_path / "run"))
    first, *_, last = validation_lines(tmp_path / "run/metrics.jsonl")
    kept = min(validation_lines(tmp_path / "run/metrics.jsonl"), key=lambda line: line["loss"])
    assert last["ndcg@10"] > first["ndcg@10"] + 0.3
    for name in ("query_active_dims", "document_active_dims", "flops"):
        assert last[name] < first[name] / 2
    assert main(["check", str(tmp_path / "run/model")]) == 0
    assert "sparse-encoder" in (tmp_path / "run/model/README.md").read_text()
    library = pytest.importorskip("sentence_transformers.sparse_encoder")
    theirs, ours = (
        library.SparseEncoder(str(tmp_path / "run/model"), device="cpu"),
        load(tmp_path / "run/model"),
    )
    texts = random_texts(20, (1, 20), 9)
    vectors = ours.encode(texts).toarray()
    assert np.abs(theirs.encode(texts, convert_to_sparse_tensor=False).numpy() - vectors).max() < 1e-5
    # The run measures what their evaluator does.
    rows = [json.loads(line) for line in open(validation)]  # noqa: SIM115
    from sentence_transformers.sparse_encoder.evaluation import SparseInformationRetrievalEvaluator

    evaluator = SparseInformationRetrievalEvaluator(
        {row["question"]: row["question"] for row in rows}, {row["answer"]: row["answer"] for row in rows},
        {row["question"]: {row["answer"]} for row in rows},
    )  # fmt: skip
    measured = evaluator(theirs)
    names = {"query_active_dims": "query_active_dims", "corpus_active_dims": "document_active_dims",
             "avg_flops": "flops", "dot_ndcg@10": "ndcg@10", "dot_mrr@10": "mrr@10"}  # fmt: skip
    for name, our_name in names.items():
        assert measured[name] == pytest.approx(kept[our_name], rel=1e-5), name


def test_the_best_model_has_the_lowest_loss_with_the_regularizers(encoder_path, tmp_path):
    task, _, config = open_sparse_task(encoder_path, write_jsonl(tmp_path / "t.jsonl", random_pairs(20)))
    means = {"embedding_loss": 2.0, "document_regularizer_loss": 0.5, "query_active_dims": 9.0}
    assert config.checkpoints.best_metric == "loss" and task.metrics_from_means(means)["loss"] == 2.5


@pytest.mark.slow
def test_weights_by_document_frequency_are_fixed(encoder_path, tmp_path):
    rows = [{"q": f"w{n}", "d": f"w1 w{n % 4 + 2}"} for n in range(12)]
    held = write_jsonl(tmp_path / "held.jsonl", [{"q": "w40", "d": "w41"}])
    train = write_jsonl(tmp_path / "pairs.jsonl", rows)
    overrides = [f"init={encoder_path}", f"data.train={train}", f"data.validation={held}", "data.batch_size=4",
                 "steps=2", "model.query_weights=idf"]  # fmt: skip
    start_training(SPARSE_CONFIG, overrides, str(tmp_path / "run"))
    model = load(tmp_path / "run/model")
    ids = {word: model.tokenizer.rust.token_to_id(word) for word in ("w1", "w2", "w9")}
    found = model.encode_query("w1 w2 w9 w1").toarray()[0]
    # Four different documents: w1 is in all of them, w2 in one, w9 in none.
    for word, documents in (("w1", 4), ("w2", 1), ("w9", 0)):
        assert found[ids[word]] == pytest.approx(
            np.log1p((4 - documents + 0.5) / (documents + 0.5)), rel=1e-6
        )
    assert np.count_nonzero(found) == 3
    # A run that goes on from them leaves them as they are, unless it is told to train them.
    for number, (chosen, same) in enumerate((("auto", True), ("learned", False))):
        given = [f"init={tmp_path / 'run/model'}", *overrides[1:-1], f"model.query_weights={chosen}"]
        start_training(SPARSE_CONFIG, given, str(tmp_path / str(number)))
        later = load(tmp_path / f"{number}/model")
        assert later.layout.sparse.frozen is same
        assert (later.encode_query("w1 w2 w9 w1").toarray()[0] == found).all() == same


@pytest.mark.slow
def test_a_run_goes_on_from_what_its_start_is(encoder_path, tmp_path):
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(20))
    first = ("model.query_weights=learned", "model.pooling=sum", "model.activation=log1p_relu", "steps=1",
             "prompts.query=w1 ")  # fmt: skip
    given = [f"init={encoder_path}", f"data.train={train}", "data.max_length=16", "data.batch_size=8", *first]
    start_training(SPARSE_CONFIG, given, str(tmp_path / "run"))
    task, _, config = open_sparse_task(tmp_path / "run/model", train)
    assert (task.sparse.pooling, task.sparse.activation, task.sparse.query_weights) == (
        "sum",
        "log1p_relu",
        True,
    )
    assert task.sparse.prompts["query"] == "w1 " and config.init_share == -1
    task, _, config = open_sparse_task(
        tmp_path / "run/model", train, "model.query_weights=none", "model.remat=full"
    )
    assert task.layout.config.remat == "full"
    assert not task.sparse.query_weights and task.query_weight == 5e-5


@pytest.mark.parametrize("score", [None, 0.5])
def test_what_cannot_be_learnt_from_is_refused(score, encoder_path, tmp_path):
    """A start without a masked LM's head, and pairs with scores."""
    rows = [row if score is None else row | {"score": score} for row in random_pairs(12)]
    start, message = encoder_path, "pairs with scores"
    if score is None:
        start, message = tmp_path / "headless", "no masked LM head"
        encoder = load(encoder_path)
        layout = replace(encoder.layout, heads=(), pooler=False)
        hub.save_model(start, layout, {"encoder": encoder.params["encoder"]}, encoder.tokenizer)
    with pytest.raises(BertJaxError, match=message):
        open_sparse_task(start, write_jsonl(tmp_path / "t.jsonl", rows))


if __name__ == "__main__":
    print_meshes(*sys.argv[1:])
