"""Losses of an embedder through all of its weights, beside sentence-transformers on the same texts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.finetuning.inspect_examples import decode_texts, list_groups
from bert_jax.hub import model_directory as hub
from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.inference.load import load
from bert_jax.losses.embedding import EMBEDDING_LOSSES, EmbeddingLossSettings, matryoshka_loss
from tests.support.embedding_tasks import open_embed_task, random_pairs
from tests.support.gradients import assert_loss_and_gradients_close
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts

GROUPS, NEGATIVES = 8, 2
# Our name of a loss, texts and scores of a group, symmetric, sizes.
CASES = [
    ("multiple_negatives", 2, 0, False, ()),
    ("multiple_negatives", 4, 0, False, ()),
    ("multiple_negatives", 3, 0, True, ()),
    ("multiple_negatives", 4, 0, False, (32, 16, 8)),
    ("guided", 2, 0, False, ()),
    ("guided", 3, 0, False, (32, 8)),
    ("triplet", 3, 0, False, ()),
    ("cosent", 2, 1, False, ()),
    ("angle", 2, 1, False, ()),
    ("cosine", 2, 1, False, ()),
    ("contrastive", 2, 1, False, ()),
    ("margin_mse", 4, 2, False, ()),
    ("margin_mse", 4, 3, False, (32, 8)),
    ("teacher_ranking", 4, 3, False, ()),
    ("teacher_vectors", 2, 0, False, ()),
]


def settings_of(name: str, symmetric: bool) -> EmbeddingLossSettings:
    return EmbeddingLossSettings(EMBEDDING_LOSSES[name].scale, EMBEDDING_LOSSES[name].margin, symmetric)


@pytest.fixture(scope="module")
def both(encoder_path, tmp_path_factory):
    """(our losses and the gradients of all parameters, sentence-transformers' for each case)"""
    root = tmp_path_factory.mktemp("embedders")
    rows = [
        row | {f"worse_{k}": text for k, text in enumerate(others)}
        for row, *others in zip(
            random_pairs(20),
            *(random_texts(20, (3, 9), seed) for seed in range(5, 5 + NEGATIVES)),
            strict=True,
        )
    ]
    train = write_jsonl(root / "groups.jsonl", rows)
    given = (
        f"data.batch_size={GROUPS}",
        "data.batching=bucketed",
        "model.hidden_dropout_prob=0.0",
        "model.attention_probs_dropout_prob=0.0",
    )
    task, data, _ = open_embed_task(encoder_path, train, *given)
    tokenizer, params = load(encoder_path).tokenizer, {"encoder": load(encoder_path).params["encoder"]}
    assert task.embedder == EmbedderSettings(max_length=16, prompts={})
    hub.save_model(root / "ours", task.layout, params, tokenizer)
    hub.save_model(
        root / "teacher", task.layout, jax.device_get(jax.jit(task.layout.init)(jax.random.key(5))), tokenizer
    )

    batch = jax.tree.map(jnp.asarray, next(iter(data.batches(0, 1, 0, 1))))
    columns = list(
        zip(
            *(
                [" ".join(text.split()[1:-1]) for text in decode_texts(group, data.tokenizer)]
                for group in list_groups(data, 0, task.texts_per_group)
            ),
            strict=True,
        )
    )
    teacher = jnp.stack([load(root / "teacher").encode(list(column)) for column in columns], 1)
    scores = np.random.default_rng(1).uniform(0, 1, (GROUPS, 3)).astype(np.float32)

    def losses(params):
        vectors, groups = task.gather_groups(task.outputs(params, batch), batch)
        of_cases = []
        for name, count, scored, symmetric, sizes in CASES:
            known = groups | {"ids": groups["ids"][:, :count]}
            known["scores"] = jnp.asarray(scores_for(name, scores[:, :scored]))
            known["teacher"] = teacher[:, : count if EMBEDDING_LOSSES[name].teacher_texts < 0 else 1]
            compute = matryoshka_loss(EMBEDDING_LOSSES[name].compute, sizes)
            of_cases.append(compute(vectors[:, :count], known, settings_of(name, symmetric)).mean)
        return jnp.stack(of_cases)

    values, gradients = jax.device_get(
        jax.jit(lambda params: (losses(params), jax.jacrev(losses)(params)))(params)
    )
    ours = {
        case: (value, to_hf_tensors(task.layout, jax.tree.map(lambda leaf, n=n: leaf[n], gradients)))
        for n, (case, value) in enumerate(zip(CASES, values, strict=True))
    }
    return ours, by_case(root, columns, scores, teacher)


def scores_for(name: str, scores: np.ndarray) -> np.ndarray:
    return scores.round() if name == "contrastive" else scores


def by_case(root, columns, scores, teacher):
    torch = pytest.importorskip("torch")
    library, losses = (
        pytest.importorskip("sentence_transformers"),
        pytest.importorskip("sentence_transformers.losses"),
    )
    theirs, guide = (
        library.SentenceTransformer(str(root / name), device="cpu") for name in ("ours", "teacher")
    )

    def of(case):
        name, count, scored, symmetric, sizes = case
        settings, both_ways = settings_of(name, symmetric), ("query_to_doc", "doc_to_query")
        loss = {
            "multiple_negatives": lambda: losses.MultipleNegativesRankingLoss(
                theirs, scale=settings.scale, directions=both_ways if symmetric else both_ways[:1],
                partition_mode="per_direction" if symmetric else "joint",
            ),
            "guided": lambda: losses.GISTEmbedLoss(theirs, guide, temperature=1 / settings.scale),
            "triplet": lambda: losses.TripletLoss(theirs, triplet_margin=settings.margin),
            "cosent": lambda: losses.CoSENTLoss(theirs, scale=settings.scale),
            "angle": lambda: losses.AnglELoss(theirs, scale=settings.scale),
            "cosine": lambda: losses.CosineSimilarityLoss(theirs),
            "contrastive": lambda: losses.ContrastiveLoss(theirs, margin=settings.margin),
            "margin_mse": lambda: losses.MarginMSELoss(theirs),
            "teacher_ranking": lambda: losses.DistillKLDivLoss(theirs),
            "teacher_vectors": lambda: losses.MSELoss(theirs),
        }[name]()  # fmt: skip
        if sizes:
            loss = losses.MatryoshkaLoss(theirs, loss, list(sizes))
        labels = torch.tensor(scores_for(name, scores[:, :scored]))
        labels = torch.tensor(np.array(teacher[:, 0])) if name == "teacher_vectors" else labels
        theirs.eval()
        theirs.zero_grad()
        value = loss(
            [theirs.tokenize(list(column)) for column in columns[:count]],
            labels[:, 0] if scored == 1 else labels,
        )
        value.backward()
        named = theirs[0].auto_model.named_parameters()
        return value.item(), {name: p.grad.numpy().copy() for name, p in named if p.grad is not None}

    return of


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_loss_has_the_reference_s_value_and_gradients(case, both):
    ours, theirs = both
    assert_loss_and_gradients_close(ours[case], theirs(case))
