"""How windows are arranged in rows changes neither gradients nor what is learnt in an epoch."""

import hashlib
import random
from dataclasses import replace

import jax
import numpy as np
import pytest

from bert_jax.data.examples.epochs import Epochs, pair_classes, shuffle_epochs
from bert_jax.data.examples.row_packing import (
    ACCELERATOR_COSTS,
    COSTS,
    BatchConfig,
    Costs,
    EncodedWindow,
    Target,
    arrange,
    collate_rows,
    distribute_to_rows,
)
from bert_jax.text.encoding import Encoding
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from tests.support.encoded_windows import answer_windows, classify_windows, tag_windows
from tests.support.tiny_encoder import TOKENIZER


@pytest.mark.ci
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (classify_windows, "classes"),
        pytest.param(tag_windows, "tags", marks=pytest.mark.long),
        pytest.param(answer_windows, "answers", marks=pytest.mark.long),
        pytest.param(classify_windows, "labels", marks=pytest.mark.long),
        pytest.param(classify_windows, "number", marks=pytest.mark.long),
    ],
)
def test_packed_and_bucketed_rows_give_the_gradients_of_padded_ones(make, kind):
    task, encoded_windows = make(kind)
    params = jax.jit(lambda: init_random_params(task, RunConfig()))()
    sizes = [len(window) for window in encoded_windows]

    def gradient(layout):
        config = BatchConfig(layout, examples=12, steps=1, seed=0, width=32, layers=1, longest=48)
        found = arrange([sizes], config, rows=3 * (layout == "packed"))
        batch = collate_rows(
            encoded_windows, found.steps[0], found.lengths[0], found.max_windows, 0, task.kind.targets.arrays
        )

        def loss(params):
            return sum(loss.mean for loss in task.losses(task.outputs(params, batch), batch).values())

        return batch["input_ids"].shape, jax.jit(jax.value_and_grad(loss))(params)

    shape, padded = gradient("padded")
    assert shape == (12, 48)
    scale = max(float(abs(leaf).max()) for leaf in jax.tree.leaves(padded[1]))
    for layout in ("packed", "bucketed")[: 1 + (kind == "classes")]:
        other_shape, other = gradient(layout)
        assert np.prod(other_shape) < np.prod(shape)
        np.testing.assert_allclose(other[0], padded[0], rtol=1e-5)
        for ours, theirs in zip(jax.tree.leaves(other[1]), jax.tree.leaves(padded[1]), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5 * scale, rtol=1e-5)


def test_rows_hold_every_piece_once_and_no_more_than_their_packs():
    sizes = [random.Random(5).randint(3, 40) for _ in range(33)]
    rows = distribute_to_rows(sizes, 8, 5)
    assert sorted(place for row in rows for place in row) == list(range(33))
    assert max(map(len, rows)) <= 5
    assert max(sum(sizes[i] for i in row) for row in rows) < 1.5 * sum(sizes) / 8


def test_rows_have_more_lengths_where_padding_costs_more_than_programs():
    steps = [[random.Random(8 * step + i).randint(3, 60) for i in range(8)] for step in range(60)]

    def lengths(width: int, layers: int, costs: Costs = COSTS["cpu"]) -> set[int]:
        config = BatchConfig("packed", 8, 60, 0, width, layers, 64, costs=costs)
        return set(arrange(steps, config).lengths)

    assert len(lengths(128, 2)) == 1 < len(lengths(768, 12))
    assert len(lengths(768, 12, ACCELERATOR_COSTS)) == 1


def epochs(**changes):
    task, encoded_windows = classify_windows("classes")
    config = replace(BatchConfig("packed", 4, steps=9, seed=0, width=32, layers=1, longest=48), **changes)
    seen, targets = [], task.kind.targets.arrays
    evaluate = lambda found: seen.append(found) or {}  # noqa: E731
    data = Epochs(
        encoded_windows, encoded_windows[:7], targets, TOKENIZER, config, evaluate, each_token=False
    )
    return data, encoded_windows, seen


@pytest.mark.parametrize(
    ("layout", "rows", "bytes_"), [("packed", 8, "fa77f23b005ca9af"), ("padded", 32, "dc4ae5390b709b1c")]
)
def test_batches_are_those_of_before(layout, rows, bytes_):
    """A run that goes on sees the batches that it began with, also after a change of the code."""
    drawn = np.random.default_rng(0).integers(3, 60, 300).tolist()
    encoded_windows = [
        EncodedWindow(
            Encoding(list(range(1, n + 1)), [0] * n, [(0, 0)] * n), i, {"labels": i % 3, "label_weights": 1.0}
        )
        for i, n in enumerate(drawn)
    ]
    costs = Costs(5e11)
    config = BatchConfig(layout, 32, steps=20, seed=5, width=64, layers=1, longest=64, shards=2, costs=costs)
    targets = {"labels": Target("int32"), "label_weights": Target("float32")}
    data = Epochs(
        encoded_windows[:250],
        encoded_windows[250:],
        targets,
        TOKENIZER,
        config,
        lambda _: {},
        each_token=False,
    )
    made = hashlib.sha256()
    for batch in (*data.batches(0, 20, 0, 1), *data.validation_batches(64, 0, 1)):
        parts = [f"{value.dtype} {value.shape} ".encode() + value.tobytes() for value in batch.values()]
        made.update(hashlib.sha256(b"".join(parts)).hexdigest().encode())
    assert (data.rows_per_step, made.hexdigest()[:16]) == (rows, bytes_)
    assert data.identity() == {
        "training examples": "250 pieces, 6c290c4db5ec6e40", "validation examples": "50 pieces, 5f0f1319dcc23d8d",
    }  # fmt: skip


def test_every_epoch_has_every_example_once_and_step_n_needs_no_replay():
    data, encoded_windows, _ = epochs()
    whole = list(data.batches(0, 9, 0, 1))
    tokens = [sum(int((batch["attention_mask"]).sum()) for batch in whole[i : i + 3]) for i in (0, 3, 6)]
    assert tokens == [sum(len(window) for window in encoded_windows)] * 3
    assert {sum(int((b["label_weights"] > 0).sum()) for b in whole[i : i + 3]) for i in (0, 3, 6)} == {12}
    assert not np.array_equal(data.chosen[:3].ravel(), data.chosen[3:6].ravel())
    for batch, again in zip(whole[5:], epochs()[0].batches(5, 9, 0, 1), strict=True):
        assert all(np.array_equal(batch[name], again[name]) for name in batch)


def test_the_data_say_how_many_examples_are_truncated():
    data, encoded_windows, _ = epochs()
    assert dict(data.facts())["length"].startswith("no example is truncated; the longest has ")
    data.train = [
        replace(encoded_windows[0], encoding=replace(encoded_windows[0].encoding, dropped=2)),
        *encoded_windows[1:],
    ]
    assert dict(data.facts())["length"].startswith("1 of 12 examples to train on (8.3%) are truncated; ")


def test_hosts_make_their_own_rows_of_one_batch():
    data, _, _ = epochs(layout="bucketed")
    whole = next(data.batches(2, 3, 0, 1))
    halves = [next(data.batches(2, 3, host, 2)) for host in (0, 1)]
    for name in whole:
        np.testing.assert_array_equal(np.concatenate([half[name] for half in halves]), whole[name])


@pytest.mark.parametrize("layout", ["packed", "bucketed"])
def test_what_is_predicted_of_held_out_rows_comes_back_in_order(layout):
    data, encoded_windows, seen = epochs(layout=layout)
    predicted = []
    for batch in data.validation_batches(0, 0, 1):
        # A "prediction" by which each window can be known again: its own second token.
        first = (
            batch["cls_positions"] if "segment_ids" in batch else np.zeros((len(batch["input_ids"]), 1), int)
        )
        ids = np.take_along_axis(batch["input_ids"], first + 1, axis=1)[..., None]
        predicted.append(ids if "segment_ids" in batch else ids[:, 0])
    data.metrics(predicted)
    assert [int(found[0]) for found in seen[0]] == [
        window.encoding.input_ids[1] for window in encoded_windows[:7]
    ]


def test_steps_hold_pairs_of_a_class_and_follow_from_the_seed_alone():
    """A random batch of 32 texts of 77 classes has about six pairs, one of these has at least 16."""
    classes = np.random.default_rng(0).permutation(np.arange(770) % 77)
    order = shuffle_epochs(770, 3 * 770, 5, classes)
    for epoch in order.reshape(3, 770):
        assert np.array_equal(np.sort(epoch), np.arange(770))
    first, second = classes[order].reshape(-1, 2).T
    assert np.array_equal(first, second)
    assert np.array_equal(order[:800], shuffle_epochs(770, 800, 5, classes)), "more steps change none"
    assert not np.array_equal(order, shuffle_epochs(770, 3 * 770, 6, classes))
    assert pair_classes(np.array([2, 1, 0]), [0, 0, 0]).tolist() == [2, 1, 0], "the last stands alone"
