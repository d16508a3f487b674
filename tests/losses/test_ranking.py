"""Losses of a cross-encoder through all of its weights, beside sentence-transformers on the same pairs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.finetuning.encoded_windows import gather_by_example
from bert_jax.hub import model_directory as hub
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.losses.ranking import RANKING_LOSSES
from bert_jax.tasks import load_config as load_task
from bert_jax.training.state import init_random_params
from tests.support.gradients import assert_loss_and_gradients_close
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts

QUERIES, DOCUMENTS = 6, 4
# Our name of a loss, and the labels of documents that it is compared by.
CASES = [
    ("binary", "right"),
    ("cross_entropy", "right"),
    ("list_net", "graded"),
    ("rank_net", "graded"),
    ("lambda_rank", "graded"),
    ("lambda_rank", "right"),
    ("margin_mse", "right"),
]


@pytest.fixture(scope="module")
def both(encoder_path, tmp_path_factory):
    """(our value and gradients of each case, sentence-transformers')"""
    root = tmp_path_factory.mktemp("rankers")
    rng = np.random.default_rng(2)
    queries, documents = random_texts(QUERIES, (3, 5)), random_texts(QUERIES * DOCUMENTS, (1, 14), 7)
    lists = [documents[n * DOCUMENTS : (n + 1) * DOCUMENTS] for n in range(QUERIES)]
    labels = {
        "right": np.float32([[1.0, *[0.0] * (DOCUMENTS - 1)]] * QUERIES),
        "graded": rng.integers(0, 4, (QUERIES, DOCUMENTS)).astype(np.float32),
    }
    scores = rng.normal(0, 2, (QUERIES, DOCUMENTS)).astype(np.float32)
    rows = [
        {
            "query": query,
            "positive": first,
            **{f"worse_{k}": text for k, text in enumerate(rest)},
            "score": given,
        }
        for query, (first, *rest), given in zip(queries, lists, scores.tolist(), strict=True)
    ]
    train = write_jsonl(root / "train.jsonl", rows)
    overrides = [
        f"init={encoder_path}", f"data.train={train}", f"data.validation={train}", "data.calibration_ratio=0.0",
        f"data.batch_size={QUERIES}", "data.max_length=24", "data.batching=packed", "model.hidden_dropout_prob=0.0",
        "model.attention_probs_dropout_prob=0.0", "model.head_dropout=0.0", "loss.name=margin_mse",
    ]  # fmt: skip
    module, config = load_task("configs/rerank.py", overrides)
    task, data, config = module.open(config, ModelDirectories())
    params = jax.device_get(jax.jit(lambda: init_random_params(task, config))())
    # Initial values are so small that all pairs have nearly the same logit, and their difference is lost in rounding.
    params = jax.tree.map(lambda leaf: leaf * (4 if leaf.ndim > 1 else 1), params)
    hub.save_model(root / "ours", task.layout, params, data.tokenizer)
    batch = jax.tree.map(jnp.asarray, next(data.batches(0, 1, 0, 1)))
    assert batch["labels"].ndim == 2, "or no row holds several pairs"
    # The order that the step has the queries in.
    chosen = data.chosen[0, ::DOCUMENTS] // DOCUMENTS

    def losses(params):
        logits = task.outputs(params, batch)[task.head][..., 0]
        known = {
            "label_weights": gather_by_example(batch["label_weights"], batch, DOCUMENTS),
            "scores": gather_by_example(batch["scores"], batch, DOCUMENTS),
        }
        of_cases = []
        for name, graded in CASES:
            wanted = jnp.asarray(labels[graded][chosen])
            wanted = jnp.zeros_like(known["label_weights"]).at[:QUERIES].set(wanted)
            loss = RANKING_LOSSES[name].compute(
                gather_by_example(logits, batch, DOCUMENTS),
                known | {"labels": wanted},
                RANKING_LOSSES[name].scale,
            )
            of_cases.append(loss.mean)
        return jnp.stack(of_cases)

    values, gradients = jax.device_get(
        jax.jit(lambda params: (losses(params), jax.jacrev(losses)(params)))(params)
    )
    ours = {
        case: (value, to_hf_tensors(task.layout, jax.tree.map(lambda leaf, n=n: leaf[n], gradients)))
        for n, (case, value) in enumerate(zip(CASES, values, strict=True))
    }
    return ours, reference(root / "ours", queries, lists, labels, scores)


def reference(directory, queries, lists, labels, scores):
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.cross_encoder.losses")
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(str(directory), device="cpu")
    columns = [list(column) for column in zip(*lists, strict=True)]

    def of(case):
        name, graded = case
        wanted = [torch.tensor(row) for row in labels[graded]]
        pairs = [query for query, texts in zip(queries, lists, strict=True) for _ in texts], sum(lists, [])
        loss, inputs, given = {
            "binary": lambda: (losses.BinaryCrossEntropyLoss(theirs), pairs, torch.cat(wanted)),
            "cross_entropy": lambda: (
                losses.MultipleNegativesRankingLoss(theirs, num_negatives=None), [queries, *columns], None
            ),
            "list_net": lambda: (losses.ListNetLoss(theirs), [queries, lists], wanted),
            "rank_net": lambda: (losses.RankNetLoss(theirs), [queries, lists], wanted),
            "lambda_rank": lambda: (losses.LambdaLoss(theirs), [queries, lists], wanted),
            "margin_mse": lambda: (losses.MarginMSELoss(theirs), [queries, *columns], torch.tensor(scores)),
        }[name]()  # fmt: skip
        if name == "cross_entropy":
            loss.get_in_batch_negatives = lambda *_: []  # the negatives that are given are enough
        theirs.eval()
        theirs.zero_grad()
        value = loss(inputs, given)
        value.backward()
        named = theirs[0].auto_model.named_parameters()
        return value.item(), {name: p.grad.numpy().copy() for name, p in named if p.grad is not None}

    return of


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_loss_has_the_reference_s_value_and_gradients(case, both):
    ours, theirs = both
    assert_loss_and_gradients_close(ours[case], theirs(case))


def padded(rng):
    """Logits and lists of three and of two documents, beside each of them alone."""
    logits = rng.normal(size=(2, 3)).astype(np.float32)
    lists = {
        "labels": np.float32([[1, 0, 2], [0, 1, 0]]), "scores": rng.normal(size=(2, 3)).astype(np.float32),
        "label_weights": np.float32([[1, 1, 1], [1, 1, 0]]),
    }  # fmt: skip
    alone = [
        (logits[n : n + 1, :size], {k: v[n : n + 1, :size] for k, v in lists.items()})
        for n, size in ((0, 3), (1, 2))
    ]
    return logits, lists, alone


@pytest.mark.slow
@pytest.mark.parametrize("name", RANKING_LOSSES)
def test_what_stands_for_no_document_changes_nothing(name):
    logits, lists, alone = padded(np.random.default_rng(4))
    compute = jax.jit(partial(RANKING_LOSSES[name].compute, scale=RANKING_LOSSES[name].scale))
    whole, parts = compute(logits, lists), [compute(*one) for one in alone]
    assert float(whole.total) == pytest.approx(float(sum(part.total for part in parts)), rel=1e-5)
    assert float(whole.weight) == float(sum(part.weight for part in parts))
    slopes = np.asarray(jax.jit(jax.grad(lambda logits: compute(logits, lists).total))(logits))
    assert np.isfinite(slopes).all() and slopes[1, 2] == 0 and np.abs(slopes[1, :2]).max() > 0


def test_a_teacher_s_ranking_is_the_divergence_of_two_softmaxes():
    torch = pytest.importorskip("torch")
    logits, lists, _ = padded(np.random.default_rng(5))
    ours = RANKING_LOSSES["teacher_ranking"].compute(logits[:1], {k: v[:1] for k, v in lists.items()}, 2.0)
    of = torch.nn.functional
    expected = of.kl_div(
        of.log_softmax(2 * torch.tensor(logits[:1]), -1), of.softmax(2 * torch.tensor(lists["scores"][:1]), -1),
        reduction="batchmean",
    )  # fmt: skip
    assert float(ours.mean) == pytest.approx(expected.item(), rel=1e-5)
