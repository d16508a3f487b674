"""Losses of sparse embedders through all of their weights, beside sentence-transformers' SpladeLoss on one batch."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from bert_jax.finetuning.inspect_examples import decode_texts, list_groups
from bert_jax.hub import model_directory as hub
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.training.gradient import add_step, make_gradient
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import StepConstants, abstract_state, get_shardings
from bert_jax.training.warm_start import read_initial_params
from tests.support.embedding_tasks import open_sparse_task, random_pairs
from tests.support.gradients import assert_loss_and_gradients_close
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts

GROUPS, STEPS_OF_RUN = 8, 12
WEIGHTS = {"document_regularizer_weight": 0.03, "query_regularizer_weight": 0.05}
# Loss, scores of a group, how queries are read, pooling.
CASES = [
    ("multiple_negatives", 0, "none", "max"),
    ("margin_mse", 2, "none", "sum"),
    ("teacher_ranking", 3, "none", "max"),
    ("multiple_negatives", 0, "learned", "max"),
]


def open_task(encoder_path, folder, case):
    name, scored, queries, pooling = case
    random = np.random.default_rng(1)
    others = (random_texts(20, (3, 9), seed) for seed in (5, 6))
    rows = [
        row
        | {"worse": worse, "worst": worst}
        | ({"score": random.uniform(0, 1, scored).tolist()} if scored else {})
        for row, worse, worst in zip(random_pairs(20), *others, strict=True)
    ]
    given = (
        f"data.batch_size={GROUPS}", "data.batching=bucketed", "model.hidden_dropout_prob=0.0",
        "model.attention_probs_dropout_prob=0.0", f"steps={STEPS_OF_RUN}", f"loss.name={name}",
        f"model.query_weights={queries}", f"model.pooling={pooling}",
        *(f"loss.{key}={value}" for key, value in WEIGHTS.items()),
    )  # fmt: skip
    return open_sparse_task(encoder_path, write_jsonl(folder / "groups.jsonl", rows), *given)


def our_losses(encoder_path, folder, case):
    """(finished steps, microbatches) -> loss and gradients by their published names; the task, its texts and scores."""
    task, data, config = open_task(encoder_path, folder, case)
    params, _ = read_initial_params(ModelDirectories(), str(encoder_path), task, 0)
    hub.save_model(folder / "ours", task.layout, params, data.tokenizer)
    (batch,) = data.batches(0, 1, 0, 1)

    @cache
    def gradient_of(parts: int):
        changed = replace(config, mesh=replace(config.mesh, gradient_accumulation_steps=parts))
        mesh = make_mesh(changed.mesh, jax.devices()[:1])
        shardings = get_shardings(abstract_state(task, changed, mesh)).params
        gradient, key = make_gradient(task, changed, mesh, shardings), jax.random.key(0)
        return jax.jit(lambda step: gradient(params, add_step(batch, step), key, StepConstants(0, 0, {})))

    def compute(finished: int, parts: int = 1):
        gradients, measured = gradient_of(parts)(finished)
        total = sum(float(loss.mean) for loss in measured["losses"].values())
        return total, to_hf_tensors(task.layout, gradients)

    groups = list_groups(data, 0, task.texts_per_group)
    texts = [[text.replace("[CLS] ", "").replace(" [SEP]", "") for text in decode_texts(group, data.tokenizer)]
             for group in groups]  # fmt: skip
    scores = [group[0].targets.get("scores", ()) for group in groups]
    return compute, list(zip(*texts, strict=True)), np.array(scores, np.float32)


def their_losses(folder, case, columns, scores):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers.sparse_encoder")
    from sentence_transformers.sparse_encoder import losses
    from sentence_transformers.sparse_encoder.callbacks import SpladeRegularizerWeightSchedulerCallback

    name, _, queries, _ = case
    model = library.SparseEncoder(str(folder / "ours"), device="cpu")
    model.train()  # its pooling has no gradient otherwise; the model has no dropout
    base = {
        "multiple_negatives": lambda: losses.SparseMultipleNegativesRankingLoss(model),
        "margin_mse": lambda: losses.SparseMarginMSELoss(model),
        "teacher_ranking": lambda: losses.SparseDistillKLDivLoss(model, temperature=1.0),
    }[name]()

    def compute(finished: int, parts: int = 1):
        of = losses.SpladeLoss(model, base, **WEIGHTS)
        if parts > 1:
            of = losses.CachedSpladeLoss(model, base, **WEIGHTS, mini_batch_size=GROUPS // parts)
        schedule = SpladeRegularizerWeightSchedulerCallback(of)
        state = SimpleNamespace(max_steps=STEPS_OF_RUN, global_step=finished)
        schedule.on_train_begin(None, state, None)
        schedule.on_step_begin(None, state, None)
        model.zero_grad()
        tasks = ["query", *["document"] * (len(columns) - 1)]
        features = [
            model.preprocess(list(column), task=task) for column, task in zip(columns, tasks, strict=True)
        ]
        value = sum(of(features, torch.tensor(scores) if scores.size else None).values())
        value.backward()
        routes = model[0].sub_modules if queries == "learned" else {"document": [model[0]]}
        gradients = dict(routes["document"][0].auto_model.named_parameters())
        if queries == "learned":
            gradients["query_weights.weight"] = routes["query"][0].weight
        return value.item(), {
            key: p.grad.numpy().copy() for key, p in gradients.items() if p.grad is not None
        }

    return compute


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_loss_has_the_reference_s_value_and_gradients_at_each_step_of_the_schedule(
    case, encoder_path, tmp_path
):
    ours, columns, scores = our_losses(encoder_path, tmp_path, case)
    theirs = their_losses(tmp_path, case, columns, scores)
    steps = (0, 1, 3, STEPS_OF_RUN // 3, STEPS_OF_RUN) if case == CASES[0] else (STEPS_OF_RUN // 3,)
    values = set()
    for finished in steps:
        computed = ours(finished)
        assert_loss_and_gradients_close(computed, theirs(finished))
        values.add(round(computed[0], 5))
    assert len(values) == max(1, len(steps) - 1), "the weights differ until the warm-up ends"
    # Cached gradients, on both sides.
    assert_loss_and_gradients_close(ours(3, parts=4), theirs(3, parts=4))
