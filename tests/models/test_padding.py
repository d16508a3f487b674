"""Padding is inert: however examples are arranged in rows, outputs at their tokens, losses and gradients are the same.

The reference has no padding at all: rows that examples fill to the last place. Against it: the same examples in other
rows and another order, with gaps between them, rows of padding alone, and padding beyond the position table, packed and
a row each. Padding holds rubbish, not zeros.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub.layout import Layout
from bert_jax.models.bert import Bert
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.predictions.kind import require_kind
from bert_jax.tasks.pretrain import PretrainTask
from tests.support.gradients import assert_gradients_equal

LABELS = ("a", "b", "c")
CONFIG = EncoderConfig(
    vocab_size=60,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=16,
    type_vocab_size=2,
)
HEADS = ("mlm", "nsp", "classify", "tag", "answer")
MODULE = Bert(CONFIG, HEADS, len(LABELS))
FULL, PACKS, TARGETS = 16, 4, 8  # places, examples and masked words of a row


def made_up_examples(random) -> list[list[dict]]:
    """Two rows of 1 to 4 examples, whose lengths fill them."""
    rows = []
    for _ in range(2):
        cuts = np.sort(random.choice(np.arange(2, FULL - 1, 2), random.randint(0, PACKS), replace=False))
        rows.append([example(n, random) for n in np.diff([0, *cuts, FULL])])
    return rows


def example(length: int, random) -> dict:
    start = random.randint(length)
    return {
        "length": length,
        "input_ids": random.randint(5, 60, length),
        "token_type_ids": np.sort(random.randint(0, 2, length)),
        "masked": np.sort(random.permutation(length)[: random.randint(1, 3)]),
        "words": random.randint(5, 60, length),
        "tags": random.randint(0, 3, length),
        "label": random.randint(0, 2),
        "starts": start,
        "ends": random.randint(start, length),
    }


def arranged(rows: list[list[tuple[int, dict]]], length: int, packed: bool, random) -> dict:
    """Rows of (begin, example) as the batches of every task; what stands between and behind them is rubbish."""
    B, P = len(rows), PACKS if packed else 1

    def rubbish(high, *shape):
        return random.randint(0, high, shape)

    tokens = {"input_ids": rubbish(60, B, length), "token_type_ids": rubbish(2, B, length)}
    tokens |= {name: np.zeros((B, length), int) for name in ("attention_mask", "segment_ids")}
    tokens["cls_positions"] = np.zeros((B, P), int)
    masked = {"target_positions": rubbish(length, B, TARGETS), "targets": rubbish(60, B, TARGETS)}
    masked["target_weights"] = np.zeros((B, TARGETS), np.float32)
    tags = {"labels": rubbish(9, B, length), "label_weights": np.zeros((B, length), np.float32)}
    whole = {name: rubbish(9, B, P) for name in ("labels", "starts", "ends")}
    whole["label_weights"] = np.zeros((B, P), np.float32)
    for row, examples in enumerate(rows):
        used = 0
        for slot, (begin, e) in enumerate(examples):
            here, targets = slice(begin, begin + e["length"]), slice(used, used + len(e["masked"]))
            tokens["input_ids"][row, here], tokens["token_type_ids"][row, here] = (
                e["input_ids"],
                e["token_type_ids"],
            )
            tokens["attention_mask"][row, here], tokens["segment_ids"][row, here] = 1, slot + 1
            tokens["cls_positions"][row, slot] = begin
            masked["target_positions"][row, targets] = begin + e["masked"]
            masked["targets"][row, targets] = e["words"][e["masked"]]
            masked["target_weights"][row, targets] = 1
            tags["labels"][row, here], tags["label_weights"][row, here] = e["tags"], 1
            whole["labels"][row, slot], whole["label_weights"][row, slot] = e["label"], 1
            whole["starts"][row, slot], whole["ends"][row, slot] = e["starts"], e["ends"]
            used += len(e["masked"])
    if not packed:
        tokens = {name: tokens[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
        whole = {name: array[:, 0] for name, array in whole.items()}
    tokens |= {name: masked.pop(name) for name in ("target_positions",)}
    return {"tokens": tokens, "pretrain": masked | whole, "tag": tags, "classify": whole, "answer": whole}


@functools.cache
def program(packed: bool):
    def finetuning(head, labels=()):
        layout = Layout(CONFIG, heads=(head,), labels=labels)
        return FinetuneTask(layout, require_kind(layout))

    tasks = {
        "pretrain": PretrainTask(Layout(CONFIG, heads=("mlm", "nsp")), DataConfig()),
        "classify": finetuning("classify", LABELS),
        "tag": finetuning("tag", LABELS),
        "answer": finetuning("answer"),
    }

    def run(params, batch):
        outputs = MODULE.apply({"params": params}, batch["tokens"])
        losses: dict = {}
        for name, task in tasks.items():
            losses |= task.losses(outputs, batch["tokens"] | batch[name])
        # The pooled states have no loss of their own: each example's weigh as it does in the others.
        weight = batch["classify"]["label_weights"]
        direction = jnp.cos(jnp.arange(16.0))
        pooled = ((outputs["pooled"] @ direction) * weight).sum()
        return sum(loss.mean for loss in losses.values()) + pooled / 8, (outputs, losses)

    return jax.jit(jax.value_and_grad(run, has_aux=True))


@functools.cache
def params():
    initial = jax.jit(MODULE.init)(jax.random.key(0), arranged([[]], 4, True, np.random)["tokens"])
    return jax.tree.map(lambda x: 4 * x + 0.02, jax.device_get(initial["params"]))


def computed(rows, length: int, packed: bool, random):
    """({example's number: its outputs}, losses, gradients)."""
    batch = arranged([[(begin, e) for begin, _, e in row] for row in rows], length, packed, random)
    # In NumPy: JAX would compile a program for each slice below.
    (total, (outputs, losses)), gradients = jax.device_get(program(packed)(params(), batch))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((total, outputs, gradients)))
    of_examples = {}
    for row, examples in enumerate(rows):
        used = 0
        for slot, (begin, number, e) in enumerate(examples):
            here = slice(begin, begin + e["length"])
            taken = {name: outputs[name][row, here] for name in ("hidden", "tag", "answer")}
            taken["mlm"] = outputs["mlm"][row, used : used + len(e["masked"])]
            at = (row, slot) if packed else row
            taken |= {name: outputs[name][at] for name in ("pooled", "nsp", "classify")}
            of_examples[number] = taken
            used += len(e["masked"])
    return of_examples, {name: loss.mean for name, loss in losses.items()}, gradients


def assert_equal(ours, theirs):
    for kind, a, b in zip(("outputs", "losses"), ours, theirs, strict=False):
        jax.tree.map(lambda x, y, kind=kind: np.testing.assert_allclose(x, y, atol=2e-5, err_msg=kind), a, b)
    assert_gradients_equal(ours[2], theirs[2])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_padding_changes_nothing(seed):
    random = np.random.RandomState(seed)
    rows = made_up_examples(random)
    numbered = list(enumerate(e for row in rows for e in row))
    unpadded, number = [], 0
    for row in rows:
        begins = np.cumsum([0, *(e["length"] for e in row)])
        unpadded.append(
            [(begin, number + i, e) for i, (begin, e) in enumerate(zip(begins, row, strict=False))]
        )
        number += len(row)
    expected = computed(unpadded, FULL, True, random)

    # Packed in another order, with gaps, rows of padding alone, and most places beyond the position table.
    again: list[list] = [[] for _ in range(5)]
    open_rows = random.permutation(5)[:3]
    for i in random.permutation(len(numbered)):
        row = again[random.choice([r for r in open_rows if len(again[r]) < PACKS])]
        last = row[-1][0] + row[-1][2]["length"] if row else 0
        row.append((last + random.randint(0, 4), *numbered[i]))
    assert_equal(computed(again, 90, True, random), expected)

    # A row each, with rows of padding alone.
    order = random.permutation(10)
    alone = [[(0, *numbered[i])] if i < len(numbered) else [] for i in order]
    assert_equal(computed(alone, 40, False, random), expected)
