"""Losses of late interaction through all weights, beside sentence-transformers' on one batch."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from bert_jax.finetuning.inspect_examples import decode_texts, list_groups
from bert_jax.hub import model_directory as hub
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings, QueryExpansion
from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.hub.sentence_transformers import Projection
from bert_jax.inference.load import load
from bert_jax.training.gradient import make_gradient
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import StepConstants, abstract_state, get_shardings
from bert_jax.training.warm_start import read_initial_params
from tests.support.embedding_tasks import open_late_interaction_task, random_pairs
from tests.support.gradients import assert_loss_and_gradients_close
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts

GROUPS = 8
SKIPPED = MultiVectorSettings(max_length=16, prompts={"query": "w5 ", "document": "w6 "}, skiplist=("w1", "w2", "w3"),
                              skiplist_tasks=("query", "document"), projection=Projection(24, bias=False))  # fmt: skip
HIDDEN = replace(SKIPPED, expansion=QueryExpansion(12), skiplist_tasks=("document",))
ATTENDED = replace(SKIPPED, expansion=QueryExpansion(8, "min", attend=True))
MEANS = replace(SKIPPED, similarity="meanmaxsim", projection=None)
# Loss, scores of a group, temperature, settings of the model, rows.
CASES = [
    ("multiple_negatives", 0, 1.0, SKIPPED, "packed"),
    ("multiple_negatives", 0, 1.0, HIDDEN, "bucketed"),
    ("multiple_negatives", 0, 0.5, HIDDEN, "packed"),
    ("multiple_negatives", 0, 1.0, ATTENDED, "packed"),
    ("teacher_ranking", 3, 2.0, HIDDEN, "bucketed"),
    ("margin_mse", 2, 1.0, SKIPPED, "packed"),
    ("margin_mse", 3, 1.0, MEANS, "bucketed"),
]


def our_losses(encoder_path, folder, case):
    """microbatches -> loss and gradients by their published names; the batch's texts and scores."""
    name, scored, temperature, settings, rows = case
    encoder = load(encoder_path)
    layout = replace(encoder.layout, heads=(), pooler=False).embedding_with(settings)
    params = jax.device_get(layout.init(jax.random.key(1))) | {"encoder": encoder.params["encoder"]}
    hub.save_model(folder / "ours", layout, params, encoder.tokenizer)
    random = np.random.default_rng(1)
    others = (random_texts(20, (3, 9), seed) for seed in (5, 6))
    groups = [
        row
        | {"worse": worse, "worst": worst}
        | ({"score": random.uniform(0, 1, scored).tolist()} if scored else {})
        for row, worse, worst in zip(random_pairs(20), *others, strict=True)
    ]
    given = (
        f"data.batch_size={GROUPS}", f"data.batching={rows}", "model.hidden_dropout_prob=0.0",
        "model.attention_probs_dropout_prob=0.0", f"loss.name={name}",
        *[f"loss.scale={1 / temperature}"] * (temperature != 1),
    )  # fmt: skip
    task, data, config = open_late_interaction_task(
        folder / "ours", write_jsonl(folder / "t.jsonl", groups), *given
    )
    assert task.layout.multi_vector == load(folder / "ours").layout.multi_vector
    params, _ = read_initial_params(ModelDirectories(), str(folder / "ours"), task, 0)
    (batch,) = data.batches(0, 1, 0, 1)
    assert ("segment_ids" in batch) == (rows == "packed")

    @cache
    def compute(parts: int = 1):
        changed = replace(config, mesh=replace(config.mesh, gradient_accumulation_steps=parts))
        mesh = make_mesh(changed.mesh, jax.devices()[:1])
        shardings = get_shardings(abstract_state(task, changed, mesh)).params
        gradient = make_gradient(task, changed, mesh, shardings)
        key, constants = jax.random.key(0), StepConstants(0, 0, {})
        gradients, measured = jax.jit(lambda: gradient(params, batch, key, constants))()
        (loss,) = measured["losses"].values()
        return float(loss.mean), to_hf_tensors(task.layout, gradients)

    listed = list_groups(data, 0, task.texts_per_group)
    decoded = [decode_texts(group, data.tokenizer) for group in listed]
    texts = [[undress(text) for text in group] for group in decoded]
    return compute, list(zip(*texts, strict=True)), [group[0].targets.get("scores", ()) for group in listed]


def undress(text: str) -> str:
    """Remove what stands around a text: special tokens, and the prompt, which is one word."""
    return " ".join(word for word in text.split()[2:] if word[0] != "[")


def their_losses(folder, case, columns, scores):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers.multi_vector_encoder")
    from sentence_transformers.multi_vector_encoder import losses, scoring

    name, scored, temperature, settings, _ = case
    model = library.MultiVectorEncoder(str(folder / "ours"), device="cpu")
    mean = settings.similarity == "meanmaxsim"
    pairwise = {
        "similarity_fct": scoring.mean_colbert_scores_pairwise if mean else scoring.colbert_scores_pairwise
    }
    scale = {"scale": 1 / temperature}
    makers = {
        "multiple_negatives": (
            lambda: losses.MultiVectorMultipleNegativesRankingLoss(model, **scale),
            lambda size: losses.CachedMultiVectorMultipleNegativesRankingLoss(
                model, mini_batch_size=size, **scale
            ),
        ),
        "teacher_ranking": (lambda: losses.MultiVectorDistillKLDivLoss(model, temperature=temperature),),
        "margin_mse": (lambda: losses.MultiVectorMarginMSELoss(model, **pairwise),),
    }[name]
    tasks = ["query", *["document"] * (len(columns) - 1)]

    def compute(parts: int = 1):
        of = makers[0]() if parts == 1 else makers[1](GROUPS // parts)
        model.zero_grad()
        features = [
            model.preprocess(list(column), task=task, prompt=settings.prompts[task])
            for column, task in zip(columns, tasks, strict=True)
        ]
        value = of(features, torch.tensor(scores) if scored else None)
        value.backward()
        named = dict(model[0].auto_model.named_parameters())
        if settings.projection:
            named["projection.linear.weight"] = model[1].linear.weight
        return value.item(), {key: p.grad.numpy().copy() for key, p in named.items() if p.grad is not None}

    model.eval()
    return compute


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[-1]}")
def test_every_loss_has_the_reference_s_value_and_gradients(case, encoder_path, tmp_path):
    ours, columns, scores = our_losses(encoder_path, tmp_path, case)
    theirs = their_losses(tmp_path, case, columns, scores)
    assert_loss_and_gradients_close(ours(), theirs())
    if case == CASES[1]:  # cached gradients, on both sides
        assert_loss_and_gradients_close(ours(4), theirs(4))
