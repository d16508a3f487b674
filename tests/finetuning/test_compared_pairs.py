"""Pairs whose texts are encoded separately: the head learns from the difference of their vectors."""

import random

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.row_packing import EncodedWindow, Target, collate_rows
from bert_jax.finetuning.choose_method import candidate_methods
from bert_jax.hub import sentence_transformers
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.inference.computations import HeadLogits
from bert_jax.inference.load import load
from bert_jax.tasks import load_config as load_task
from bert_jax.text.encoding_options import encode_separately
from tests.support.finetuning_runs import finetune
from tests.support.made_up_language import WORDS
from tests.support.model_outputs import compute_outputs
from tests.support.tables import write_csv
from tests.support.texts import random_texts
from tests.support.tiny_encoder import TOKENIZER

LABELS = ("other", "same")
PAIRS = [("w1 w2", "w3"), ("w4 w5 w6 w7", "w8 w1"), ("w2", "w9 w3 w4 w4 w5")]


def test_the_texts_stand_one_behind_the_other_each_as_it_is_alone():
    for pair, encoding in zip(PAIRS, encode_separately(TOKENIZER, PAIRS, 32), strict=True):
        first, second = TOKENIZER.encode(list(pair))
        assert encoding.input_ids == first.input_ids + second.input_ids
        assert encoding.text_starts == (0, len(first.input_ids))
        assert encoding.token_type_ids == first.token_type_ids + second.token_type_ids
        assert encoding.offsets == first.offsets + second.offsets
        for text, span in zip(pair, encoding.spans, strict=True):
            places = [encoding.offsets[i] for i in span]
            assert text[places[0][0] : places[-1][1]] == text


def test_the_longer_text_is_cut_first():
    long, short = " ".join(["w1"] * 20), "w2 w3"
    alone = [len(encoding.input_ids) for encoding in TOKENIZER.encode([long, short])]
    for pair in ((long, short), (short, long)):
        (encoding,) = encode_separately(TOKENIZER, [pair], alone[1] + 9)
        sizes = encoding.text_starts[1], len(encoding.input_ids) - encoding.text_starts[1]
        assert sorted(sizes) == sorted((alone[1], 9)) and encoding.dropped == alone[0] - 9
        ends = encoding.text_starts[1] - 1, len(encoding.input_ids) - 1
        assert [encoding.input_ids[i] for i in ends] == [TOKENIZER.special.sep] * 2


@pytest.mark.parametrize("max_windows", [1, 2])
def test_each_text_is_a_sequence_of_its_own(max_windows):
    encoded_windows = [
        EncodedWindow(encoding, n, {"labels": n})
        for n, encoding in enumerate(encode_separately(TOKENIZER, PAIRS[:2], 32))
    ]
    rows = [[0], [1]] if max_windows == 1 else [[1, 0], []]
    batch = collate_rows(
        encoded_windows, rows, 24, max_windows, TOKENIZER.special.pad, {"labels": Target("int32")}
    )
    assert batch["labels"].tolist() == ([0, 1] if max_windows == 1 else [[1, 0], [0, 0]])
    for row, indices in enumerate(rows):
        numbers, begins = [], []
        for place, i in enumerate(indices):
            first = encoded_windows[i].encoding.text_starts[1]
            begins += [len(numbers), len(numbers) + first]
            numbers += [2 * place + 1] * first + [2 * place + 2] * (len(encoded_windows[i]) - first)
        assert batch["segment_ids"][row].tolist() == numbers + [0] * (24 - len(numbers))
        assert batch["cls_positions"][row, : len(begins)].tolist() == begins


@pytest.fixture
def compared(tmp_path, encoder_path, request):
    head = f"compare_{getattr(request, 'param', 'mean')}"
    load(encoder_path, head=head, labels=LABELS, seed=3).save(tmp_path / "model")
    return load(tmp_path / "model")


@pytest.mark.slow
@pytest.mark.parametrize("compared", ["mean", "cls"], indirect=True)
def test_logits_are_a_linear_function_of_differences_and_their_squares(compared):
    pooling = compared.layout.heads[0].removeprefix("compare_")
    first, second = (
        compared.encode([pair[n] for pair in PAIRS], pooling=pooling, normalize_embeddings=True)
        * compared.config.hidden_size**0.5
        for n in range(2)
    )
    features = np.concatenate([(first - second) ** 2, first - second], axis=1)
    dense = compared.params[compared.layout.heads[0]]["dense"]
    logits = features @ np.asarray(dense["kernel"]) + dense["bias"]
    likely = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert compared.labels == LABELS
    np.testing.assert_allclose(compared.predict_proba(PAIRS), likely, atol=1e-5)


@pytest.mark.slow
def test_packed_rows_give_what_rows_of_their_own_give(compared):
    encodings = encode_separately(TOKENIZER, PAIRS, 32)
    alone = compared.run(encodings, HeadLogits(compared.layout.heads[0], len(LABELS)))
    encoded_windows = [EncodedWindow(encoding, n, {}) for n, encoding in enumerate(encodings)]
    batch = collate_rows(encoded_windows, [[2, 0], [1]], 32, 2, TOKENIZER.special.pad, {})
    together = compute_outputs(compared, batch)[compared.layout.heads[0]]
    assert together.shape == (2, 2, 2)
    found = [together[0, 1], together[1, 0], together[0, 0]]
    np.testing.assert_allclose(found, np.stack(alone), atol=1e-5)


def open_on_pairs(folder, **overrides):
    """The task that begins with the model in init/, on sixty pairs, and its config."""
    data = write_csv(folder / "t.csv", alike(60, 0), ("text", "text2", "label"))
    given = {
        "init": folder / "init",
        "data.train": data,
        "data.max_length": 32,
        "data.overlap": 4,
    } | overrides
    task, config = load_task("configs/classify.py", [f"{key}={value}" for key, value in given.items()])
    opened, _, config = task.open(config, ModelDirectories())
    return opened, config


@pytest.mark.slow
@pytest.mark.parametrize(
    ("embedder", "overrides", "head"),
    [
        ("mean", {}, "compare_mean"),
        (None, {}, "classify"),
        (None, {"model.pair_encoding": "bi_encoder"}, "compare_mean"),
        ("mean", {"model.pair_encoding": "cross_encoder"}, "classify_mean"),
        ("mean", {"data.folds": 0}, "classify_mean"),
        ("mean", {"model.pooling": "native"}, "classify"),
    ],
)
def test_few_pairs_are_compared_where_there_is_an_embedder(
    tmp_path, encoder_path, embedder, overrides, head, capsys
):  # fmt: skip
    load(encoder_path).save(tmp_path / "init")
    if embedder:
        sentence_transformers.write_embedder(tmp_path / "init", EmbedderSettings(pooling=embedder), 32)
    opened, config = open_on_pairs(tmp_path, **overrides)
    assert opened.layout.heads == (head,)
    if config.data.folds and head.startswith("compare"):
        assert candidate_methods(config, opened) == ["linear_probe", "finetune"]
    unasked = head.startswith("compare") and "model.pair_encoding" not in overrides
    assert ("--config.model.pair_encoding=cross_encoder" in capsys.readouterr().err) == unasked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "head"),
    [
        ({}, "compare_cls"),
        ({"model.pair_encoding": "cross_encoder"}, "classify"),
        ({"method": "contrastive"}, "classify"),
        ({"data.long_texts": "windows"}, "classify"),
    ],
)
def test_a_model_of_pairs_is_trained_on_unless_its_head_cannot_be_used(
    tmp_path, encoder_path, overrides, head
):
    load(encoder_path, head="compare_cls", labels=LABELS).save(tmp_path / "init")
    assert open_on_pairs(tmp_path, **overrides)[0].layout.heads == (head,)


def alike(count: int, seed: int) -> list[tuple[str, str, str]]:
    """Pairs of the same words in another order, and of other words."""
    rng, rows = random.Random(seed), []
    for text in random_texts(count, (4, 8), seed):
        same = rng.random() < 0.5
        words = text.split() if same else rng.choices(WORDS[20:], k=len(text.split()))
        rng.shuffle(words)
        rows.append((text, " ".join(words), LABELS[same]))
    return rows


@pytest.mark.slow
def test_likeness_is_learnt_by_a_probe_and_by_fine_tuning_and_read_back(tmp_path, encoder_path, capsys):
    header = ("text", "text2", "label")
    train, dev = (write_csv(tmp_path / f"{n}.csv", alike(100, n), header) for n in (1, 2))
    given = {"data.train": train, "data.validation": dev, "model.pair_encoding": "bi_encoder"}
    lines = finetune("classify", encoder_path, tmp_path / "run", head_init="linear_probe", epochs=3, **given)
    assert lines[-1]["accuracy"] > 0.9
    trained = load(tmp_path / "run/model")
    pairs = [tuple(row[:2]) for row in alike(40, 3)]
    found = [label.label for label in trained.classify(pairs)]
    assert np.mean([label == row[2] for label, row in zip(found, alike(40, 3), strict=True)]) > 0.85
    with pytest.raises(BertJaxError, match="single"):
        trained.classify("w1 w2")


@pytest.mark.long
def test_few_pairs_are_trained_on_only_if_folds_show_a_gain(tmp_path, encoder_path, capsys):
    train = write_csv(tmp_path / "t.csv", alike(60, 1), ("text", "text2", "label"))
    given = {"data.train": train, "model.pair_encoding": "bi_encoder", "data.folds": 3}
    # So low a rate changes nothing.
    given |= {"steps": 2, "optimizer.learning_rate": 1e-9}
    finetune("classify", encoder_path, tmp_path / "run", head_init="linear_probe", **given)
    printed = capsys.readouterr().err
    assert "out of fold, fine-tuning: accuracy" in printed and "+0.000 over the probe on the same" in printed
    assert "the final model is trained on all examples by a linear probe" in printed
    assert len(load(tmp_path / "run/model").classify([("w1 w2", "w2 w1")])) == 1
