"""Training a late-interaction model, from a table of texts to a directory that everybody opens."""

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
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings, QueryExpansion
from bert_jax.hub.sentence_transformers import EmbedderSettings, Projection
from bert_jax.inference.load import load
from bert_jax.training.gradient import make_gradient
from bert_jax.training.log import validation_lines
from bert_jax.training.sharding import make_mesh, place_batches
from bert_jax.training.state import StepConstants, abstract_state, get_shardings
from bert_jax.training.warm_start import read_initial_params
from tests.support.cases import long_except
from tests.support.embedding_tasks import LATE_CONFIG, open_late_interaction_task, random_pairs
from tests.support.gradients import assert_gradients_equal
from tests.support.pretraining_runs import assert_resumes
from tests.support.processes import run_on_eight_devices
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts

pytestmark = pytest.mark.usefixtures("shared_steps")

STILL = ("model.hidden_dropout_prob=0.0", "model.attention_probs_dropout_prob=0.0")
LENGTHENED = ("model.query_expansion=fixed", "model.query_length=9")
ONE, PARTS = "one device", "data 4, in parts"
MESHES = {ONE: {}, PARTS: {"data": 4, "gradient_accumulation_steps": 2}, "data 8": {},
          "2 x 2 x 2": {"fsdp": 2, "tensor": 2}}  # fmt: skip


def compute_gradient(model, train, *overrides, devices: int = 1, **mesh_settings):
    """The loss, and the gradients of all parameters, in the first step."""
    task, data, config = open_late_interaction_task(model, train, "data.batch_size=24", "steps=1", *overrides)
    config = replace(config, mesh=replace(config.mesh, **mesh_settings))
    mesh = make_mesh(config.mesh, jax.devices()[:devices])
    shardings = get_shardings(abstract_state(task, config, mesh)).params
    params, _ = read_initial_params(ModelDirectories(), str(model), task, 0)
    params = jax.device_put(params, shardings)
    batch = next(place_batches(data.batches(0, 1, 0, 1), mesh, data.rows_per_step))
    gradient = make_gradient(task, config, mesh, shardings)
    gradients, measured = jax.jit(
        lambda: gradient(params, batch, jax.random.key(3), StepConstants(0, 0, {}))
    )()
    (loss,) = measured["losses"].values()
    return float(loss.mean), jax.device_get(gradients), batch["input_ids"].shape


@pytest.mark.ci
def test_packed_and_bucketed_rows_and_a_batch_in_parts_have_the_same_loss_and_gradients(
    encoder_path, tmp_path
):
    """Also where queries have tokens that others do not attend to."""
    rows = [
        row | {"worse": text} for row, text in zip(random_pairs(60), random_texts(60, (2, 9), 5), strict=True)
    ]
    train = write_jsonl(tmp_path / "triplets.jsonl", rows)
    of = partial(compute_gradient, encoder_path, train, *STILL, *LENGTHENED)
    loss, gradients, shape = of("data.batching=bucketed")
    assert np.abs(gradients["projection"]["dense"]["kernel"]).max() > 1e-4
    for overrides, parts in (("data.batching=packed", 1), ("data.batching=bucketed", 6)):
        other, its, other_shape = of(overrides, gradient_accumulation_steps=parts)
        assert (shape == other_shape) is (parts > 1), "or both are the same computation"
        assert other == pytest.approx(loss, rel=1e-5)
        assert_gradients_equal(its, gradients, 1e-5)


@pytest.mark.ci
@pytest.mark.parametrize("mesh", long_except(list(MESHES)[1:], [PARTS]))
def test_every_mesh_has_the_same_loss_and_gradients(mesh, encoder_path, tmp_path):
    """With dropout. In CI, several devices and a batch in parts."""
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(60))
    expected, (loss, gradients) = run_on_eight_devices(
        "tests.tasks.test_late_interaction", str(encoder_path), train, ONE, mesh
    )
    assert loss == pytest.approx(expected[0], rel=1e-5)
    scale = max(expected[1].values())
    assert gradients == pytest.approx(expected[1], abs=1e-5 * scale, rel=1e-4)


def print_meshes(model, train, *meshes) -> None:
    found = []
    for name in meshes:
        settings = MESHES[name]
        devices = 1 if name == ONE else settings.get("data", 8)
        loss, gradients, _ = compute_gradient(
            model, train, "data.batching=bucketed", *LENGTHENED, devices=devices, **settings
        )
        leaves = jax.tree_util.tree_leaves_with_path(gradients)
        found.append((loss, {jax.tree_util.keystr(path): float(np.abs(leaf).max()) for path, leaf in leaves}))
    print(json.dumps(found))


@pytest.mark.ci
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(encoder_path, tmp_path):
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(60))
    overrides = [
        f"init={encoder_path}", f"data.train={train}", "data.max_length=24", "steps=6", "data.batch_size=16",
        "mesh.gradient_accumulation_steps=2", "model.hidden_dropout_prob=0.1", "checkpoints.every=3",
        "checkpoints.keep=9", "log.evaluate_every=3", "log.every=1", *LENGTHENED,
    ]  # fmt: skip
    run = partial(start_training, LATE_CONFIG, overrides)
    run(str(tmp_path / "whole"))
    assert_resumes(lambda again: run(str(again)), tmp_path / "whole")


@pytest.mark.slow
def test_a_run_finds_more_and_its_model_opens_everywhere(encoder_path, tmp_path):
    train, validation = (
        write_jsonl(tmp_path / f"{count}.jsonl", random_pairs(count, seed=count)) for count in (270, 40)
    )
    overrides = [
        f"init={encoder_path}", f"data.train={train}", f"data.validation={validation}", "data.max_length=24",
        "steps=24", "data.batch_size=30", "optimizer.learning_rate=1e-3", *STILL, *LENGTHENED, "prompts.query=w1 ",
        "model.skiplist=punctuation", "log.evaluate_every=12",
    ]  # fmt: skip
    start_training(LATE_CONFIG, overrides, str(tmp_path / "run"))
    first, *_, last = validation_lines(tmp_path / "run/metrics.jsonl")
    kept = max(validation_lines(tmp_path / "run/metrics.jsonl"), key=lambda line: line["ndcg@10"])
    assert last["ndcg@10"] > first["ndcg@10"] + 0.1
    assert main(["check", str(tmp_path / "run/model")]) == 0
    assert "ColBERT" in (tmp_path / "run/model/README.md").read_text()
    ours, texts = load(tmp_path / "run/model"), random_texts(20, (1, 20), 9)
    settings = ours.layout.multi_vector
    assert settings.expansion == QueryExpansion(9) and settings.projection == Projection(128, bias=False)
    assert "!" in settings.skiplist
    library = pytest.importorskip("sentence_transformers.multi_vector_encoder")
    theirs = library.MultiVectorEncoder(str(tmp_path / "run/model"), device="cpu")
    for name in ("encode_query", "encode_document"):
        for our_vectors, vectors in zip(
            getattr(ours, name)(texts), getattr(theirs, name)(texts), strict=True
        ):
            np.testing.assert_allclose(our_vectors, vectors, atol=1e-5)
    # The run measures what their evaluator does.
    rows = [json.loads(line) for line in open(validation)]  # noqa: SIM115
    from sentence_transformers.multi_vector_encoder.evaluation import MultiVectorInformationRetrievalEvaluator

    evaluator = MultiVectorInformationRetrievalEvaluator(
        {row["question"]: row["question"] for row in rows}, {row["answer"]: row["answer"] for row in rows},
        {row["question"]: {row["answer"]} for row in rows},
    )  # fmt: skip
    measured = evaluator(theirs)
    for name in ("ndcg@10", "mrr@10"):
        assert measured[f"maxsim_{name}"] == pytest.approx(kept[name], rel=1e-5), name


@pytest.mark.slow
def test_a_run_goes_on_from_what_its_start_is(encoder_path, tmp_path):
    """From a late-interaction model, and from an embedder, whose dense layer becomes that of the tokens."""
    train, encoder = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(20)), load(encoder_path)
    late = MultiVectorSettings(
        max_length=20, prompts={"query": "w1 ", "document": ""}, projection=Projection(8, bias=False),
        expansion=QueryExpansion(7, "min"), skiplist=("w3",), document_length=12, similarity="meanmaxsim",
    )  # fmt: skip
    dense = EmbedderSettings(
        max_length=20, prompts={"query": "w2 "}, projection=Projection(8, activation="tanh")
    )
    for name, settings in (("late", late), ("dense", dense)):
        layout = replace(encoder.layout, heads=(), pooler=False).embedding_with(settings)
        params = jax.device_get(layout.init(jax.random.key(0)))
        hub.save_model(tmp_path / name, layout, params, encoder.tokenizer)
        task, _, config = open_late_interaction_task(tmp_path / name, train)
        read, missing = read_initial_params(ModelDirectories(), str(tmp_path / name), task, 0)
        assert not missing
        assert (read["projection"]["dense"]["kernel"] == params["projection"]["dense"]["kernel"]).all()
        assert (config.init_share == -1) is (name == "late")
        if name == "late":
            # Documents are read up to data.max_length=16.
            assert task.multi_vector == replace(late, document_length=16) and task.settings.mean
            assert task.layout.config.attention == "xla"
        else:
            assert task.multi_vector == MultiVectorSettings(
                max_length=20, prompts={"query": "w2 "}, projection=dense.projection
            )
    task, data, _ = open_late_interaction_task(
        tmp_path / "late", train, "model.query_expansion=fixed", "model.query_length=4", "model.skiplist=none",
        "model.attend_to_expansion=yes",
    )  # fmt: skip
    assert task.multi_vector.expansion == QueryExpansion(4, attend=True) and not task.multi_vector.skiplist
    assert task.longest_texts[0] == 4 and {len(window) for window in data.train[::2]} == {4}
    task, _, _ = open_late_interaction_task(tmp_path / "late", train, "model.query_expansion=none")
    assert task.multi_vector.expansion is None and task.layout.config.attention == "auto"


@pytest.mark.parametrize(
    "overrides, message",
    [
        (("score",), "pairs with scores, which late-interaction models do not learn from"),
        (("loss.teacher=model",), "no loss of this task learns from the vectors of a teacher"),
        (("loss.margin=1",), "does not use loss.margin; losses that do: none"),
        (
            ("loss.normalize_scores=true",),
            "does not use loss.normalize_scores; losses that do: teacher_ranking",
        ),
        (("model.attend_to_expansion=no",), "for queries that are lengthened"),
        (("model.query_length=4000",), "reads at most"),
        ((*LENGTHENED, "model.attention=short"), "model.attention=short gives no states"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[-1],
)
def test_what_cannot_be_learnt_is_refused(overrides, message, encoder_path, tmp_path):
    scored = overrides == ("score",)
    rows = [row | ({"score": 0.5} if scored else {}) for row in random_pairs(12)]
    with pytest.raises(BertJaxError, match=message):
        given = () if scored else overrides
        open_late_interaction_task(encoder_path, write_jsonl(tmp_path / "t.jsonl", rows), *given)


if __name__ == "__main__":
    print_meshes(*sys.argv[1:])
