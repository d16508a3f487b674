"""Fine-tuning: what the arrangement of rows must not change, and whole runs on small files."""

import dataclasses
import hashlib
import json
import random
import re
import shutil

import jax
import numpy as np
import pytest

from bert_jax.command.inspect import show_examples
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.arrange import (
    ACCELERATOR_COSTS,
    COSTS,
    BatchConfig,
    Costs,
    EncodedExample,
    Target,
    arrange,
    collate_rows,
    distribute_to_rows,
)
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example
from bert_jax.finetuning.contrastive import ContrastiveTask
from bert_jax.finetuning.example_splits import MIN_CALIBRATION_EXAMPLES, split_examples
from bert_jax.finetuning.finetune_config import ExamplesConfig
from bert_jax.finetuning.finetune_data import balanced_class_weights, make_pieces
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub import directory as hub
from bert_jax.inference.model import load
from bert_jax.predictions.kind import KINDS
from bert_jax.predictions.kinds.answers import span_in
from bert_jax.tasks import load_config as load_task
from bert_jax.tasks.classify import Config
from bert_jax.text.tokenizer import Encoding
from bert_jax.text.truncation import EncodingOptions
from bert_jax.training import warm_start
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from tests.support.finetuning_runs import finetune
from tests.support.made_up_language import WORDS
from tests.support.tables import write_csv
from tests.support.texts import marked_texts, random_texts
from tests.support.tiny_encoder import ENCODER_CONFIG, TOKENIZER

READING = EncodingOptions(64, overlap=8)


def task_and_pieces(name: str, examples, reading=READING, labels=(), **options):
    kind = KINDS[name].from_examples(examples, labels)
    head = KINDS[name].heads[0]
    layout = hub.Layout(ENCODER_CONFIG, heads=(head,), labels=kind.labels, pooler=head == "classify")
    windows = kind.windows(TOKENIZER, [example.text for example in examples], reading)
    return FinetuneTask(layout, kind, **options), make_pieces(kind, examples, windows)


def classify_pieces(name):
    rng = random.Random(1)
    names = ("a", "b", "c")
    label = {
        "classes": lambda: rng.choice(names),
        "labels": lambda: tuple(rng.sample(names, rng.randint(0, 3))),
        "number": rng.random,
    }[name]
    examples = [Example(text, label(), "") for text in random_texts(12)]
    return task_and_pieces(name, examples, labels=names, smoothing=0.1 * (name == "classes"))


def tag_pieces(name):
    rng = random.Random(2)
    names = ("O", "B", "I")
    examples = [
        Example(tuple(t.split()), tuple(rng.choices(names, k=len(t.split()))), "") for t in random_texts(12)
    ]
    return task_and_pieces(name, examples, EncodingOptions(16, overlap=4), labels=names)


def answer_pieces(name):
    rng = random.Random(3)
    examples = []
    for i, text in enumerate(random_texts(12, (4, 12))):
        words = text.split()
        first = rng.randrange(len(words))
        start = len(" ".join(words[:first])) + bool(first)
        examples.append(Example(("w1 w2", text), ((start, words[first]),) if i % 3 else (), ""))
    return task_and_pieces(name, examples)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (classify_pieces, "classes"),
        (classify_pieces, "labels"),
        (classify_pieces, "number"),
        (tag_pieces, "tags"),
        (answer_pieces, "answers"),
    ],
)
def test_packed_and_bucketed_rows_give_the_gradients_of_padded_ones(make, kind):
    task, pieces = make(kind)
    params = jax.jit(lambda: init_random_params(task, RunConfig()))()
    sizes = [len(piece) for piece in pieces]

    def gradient(layout):
        config = BatchConfig(layout, examples=12, steps=1, seed=0, width=32, layers=1, longest=48)
        found = arrange([sizes], config, rows=3 * (layout == "packed"))
        batch = collate_rows(pieces, found.steps[0], found.lengths[0], found.max_pieces, 0, task.kind.targets)

        def loss(params):
            return sum(loss.mean for loss in task.losses(task.outputs(params, batch), batch).values())

        return batch["input_ids"].shape, jax.jit(jax.value_and_grad(loss))(params)

    shape, padded = gradient("padded")
    assert shape == (12, 48)
    scale = max(float(abs(leaf).max()) for leaf in jax.tree.leaves(padded[1]))
    for layout in ("bucketed", "packed"):
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
    task, pieces = classify_pieces("classes")
    given = {
        "layout": "packed",
        "examples": 4,
        "steps": 9,
        "seed": 0,
        "width": 32,
        "layers": 1,
        "longest": 48,
    } | changes
    seen = []
    data = Epochs(
        pieces, pieces[:7], task.kind.targets, TOKENIZER, BatchConfig(**given), lambda found: seen.append(found) or {},
        each_token=False,
    )  # fmt: skip
    return data, pieces, seen


@pytest.mark.parametrize(
    ("layout", "rows", "bytes_"), [("packed", 8, "fa77f23b005ca9af"), ("padded", 32, "dc4ae5390b709b1c")]
)
def test_batches_are_those_of_before(layout, rows, bytes_):
    """A run that goes on sees the batches that it began with, also after a change of the code."""
    drawn = np.random.default_rng(0).integers(3, 60, 300).tolist()
    pieces = [
        EncodedExample(
            Encoding(list(range(1, n + 1)), [0] * n, [(0, 0)] * n), i, {"labels": i % 3, "label_weights": 1.0}
        )
        for i, n in enumerate(drawn)
    ]
    costs = Costs(5e11)
    config = BatchConfig(layout, 32, steps=20, seed=5, width=64, layers=1, longest=64, shards=2, costs=costs)
    targets = {"labels": Target("int32"), "label_weights": Target("float32")}
    data = Epochs(pieces[:250], pieces[250:], targets, TOKENIZER, config, lambda _: {}, each_token=False)
    made = hashlib.sha256()
    for batch in (*data.batches(0, 20, 0, 1), *data.heldout(64, 0, 1)):
        parts = [f"{value.dtype} {value.shape} ".encode() + value.tobytes() for value in batch.values()]
        made.update(hashlib.sha256(b"".join(parts)).hexdigest().encode())
    assert (data.batch, made.hexdigest()[:16]) == (rows, bytes_)
    assert data.identity() == {
        "training examples": "250 pieces, 6c290c4db5ec6e40", "held-out examples": "50 pieces, 5f0f1319dcc23d8d",
    }  # fmt: skip


def test_every_epoch_has_every_example_once_and_step_n_needs_no_replay():
    data, pieces, _ = epochs()
    whole = list(data.batches(0, 9, 0, 1))
    tokens = [sum(int((batch["attention_mask"]).sum()) for batch in whole[i : i + 3]) for i in (0, 3, 6)]
    assert tokens == [sum(len(piece) for piece in pieces)] * 3
    assert {sum(int((b["label_weights"] > 0).sum()) for b in whole[i : i + 3]) for i in (0, 3, 6)} == {12}
    assert not np.array_equal(data.chosen[:3].ravel(), data.chosen[3:6].ravel())
    for batch, again in zip(whole[5:], epochs()[0].batches(5, 9, 0, 1), strict=True):
        assert all(np.array_equal(batch[name], again[name]) for name in batch)


def test_hosts_make_their_own_rows_of_one_batch():
    data, _, _ = epochs(layout="bucketed")
    whole = next(data.batches(2, 3, 0, 1))
    halves = [next(data.batches(2, 3, host, 2)) for host in (0, 1)]
    for name in whole:
        np.testing.assert_array_equal(np.concatenate([half[name] for half in halves]), whole[name])


@pytest.mark.parametrize("layout", ["packed", "bucketed"])
def test_what_is_predicted_of_held_out_rows_comes_back_in_order(layout):
    data, pieces, seen = epochs(layout=layout)
    predicted = []
    for batch in data.heldout(0, 0, 1):
        # A "prediction" by which each piece can be known again: its own second token.
        first = (
            batch["cls_positions"] if "segment_ids" in batch else np.zeros((len(batch["input_ids"]), 1), int)
        )
        ids = np.take_along_axis(batch["input_ids"], first + 1, axis=1)[..., None]
        predicted.append(ids if "segment_ids" in batch else ids[:, 0])
    data.metrics(predicted)
    assert [int(found[0]) for found in seen[0]] == [piece.encoding.input_ids[1] for piece in pieces[:7]]


# Whole runs


def outputs(model, encoding) -> dict:
    values = {
        "input_ids": encoding.input_ids,
        "token_type_ids": encoding.token_type_ids,
        "attention_mask": [1] * len(encoding.input_ids),
    }
    batch = {name: np.array([value], np.int32) for name, value in values.items()}
    return model.module.apply({"params": model.params}, batch)


@pytest.fixture(scope="module")
def classified(tmp_path_factory, encoder_path):
    root = tmp_path_factory.mktemp("classify")
    train = write_csv(root / "train.csv", marked_texts(160, 0))
    heldout = write_csv(root / "dev.csv", marked_texts(40, 1))
    lines = finetune(
        "classify",
        encoder_path,
        root / "run",
        **{"data.train": train, "data.heldout": heldout, "data.rows": "packed"},
    )
    return root, lines


@pytest.mark.slow
def test_a_head_for_other_labels_is_not_taken_over(encoder_path, tmp_path):
    rows = marked_texts(24, 0)
    given = {"data.train": write_csv(tmp_path / "t.csv", rows), "steps": 1, "log.evaluate_every": 1}
    given["data.heldout"] = given["data.train"]
    finetune("classify", encoder_path, tmp_path / "two", **given)
    begun = load_task("configs/classify.py", [f"init={tmp_path / 'two/model'}", f"data.train={given['data.train']}",
                                              "data.max_length=32"])  # fmt: skip
    task, _, config = begun[0].open(begun[1])
    assert warm_start.read_initial_params(config.init, task, 0)[1] == []
    other = write_csv(tmp_path / "three.csv", [(text, f"class {n % 3}") for n, (text, _) in enumerate(rows)])
    finetune(
        "classify",
        tmp_path / "two/model",
        tmp_path / "three",
        **given | {"data.train": other, "data.heldout": other},
    )
    assert load(tmp_path / "three/model").labels == ("class 0", "class 1", "class 2")


@pytest.mark.slow
def test_a_classifier_learns(classified):
    root, lines = classified
    assert lines[0]["step"] == 20, "an evaluation an epoch"
    assert max(line["accuracy"] for line in lines) > 0.95
    assert load(root / "run" / "model").labels == ("bad", "good")


@pytest.mark.slow
def test_transformers_gives_the_same_classes(classified):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path = classified[0] / "run" / "model"
    ours = load(path)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(path).eval()
    assert theirs.config.id2label == {0: "bad", 1: "good"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    given = [text for text, _ in marked_texts(8, 2)]
    with torch.no_grad():
        logits = theirs(**tokenizer(given, padding=True, return_tensors="pt")).logits.numpy()
    found = [ours.classify(text, scores=True) for text in given]
    likely = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose([[f["bad"], f["good"]] for f in found], likely, atol=1e-5)


@pytest.mark.slow
def test_the_model_is_that_of_the_best_evaluation(classified):
    root, lines = classified
    best = max(lines, key=lambda line: (line["accuracy"], -line["classify_loss"]))
    model = load(root / "run" / "model")
    right = [model.classify(text).label == label for text, label in marked_texts(40, 1)]
    assert np.mean(right) == pytest.approx(best["accuracy"])


@pytest.mark.parametrize(
    ("documents", "each", "share"),
    [(40, 1, None), (49, 1, None), (50, 1, 0.5), (98, 1, 0.26), (3, 60, 0.5), (10, 40, 0.15), (2, 90, None)],
)
def test_the_share_that_is_advised_keeps_enough_for_calibration(tmp_path, capsys, documents, each, share):
    rows = [
        (f"{text} {n}", random.Random(n).choice("xy"), f"d{n % documents}")
        for n, text in enumerate(random_texts(documents * each))
    ]
    path = write_csv(tmp_path / "t.csv", rows, ("text", "label", "document"))

    def parts(**changes):
        columns = ExampleColumns(document="document")
        data = ExamplesConfig(str(path), str(path), columns=columns, **changes)
        return split_examples(Config(init="anywhere", data=data))

    assert not parts(calibration_share=0.01).calibration
    advised = re.search(r"calibration_share=([\d.]+)", capsys.readouterr().out)
    assert (advised and float(advised[1])) == share
    if share:
        calibration = parts(calibration_share=share).calibration
        assert (
            len(calibration) >= MIN_CALIBRATION_EXAMPLES
            and len({example.document for example in calibration}) > 1
        )


@pytest.mark.slow
def test_a_run_that_lost_patience_stays_ended(tmp_path, encoder_path):
    rows = [(text, random.Random(text).choice(["x", "y"])) for text in random_texts(64)]  # nothing to learn
    given = {
        "data.train": write_csv(tmp_path / "t.csv", rows), "patience": 2, "epochs": 50,
        "optimizer.learning_rate": 1e-12, "log.evaluate_every": 8,
    }  # fmt: skip
    lines = finetune("classify", encoder_path, tmp_path / "run", **given)
    assert [line["step"] for line in lines] == [8, 16, 24]
    written = (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns
    assert finetune("classify", encoder_path, tmp_path / "run", **given) == lines
    assert (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns > written


@pytest.mark.parametrize("given", [(), ("steps=40", "log.evaluate_every=4", "checkpoints.every=4")])
def test_patience_waits_for_the_metric_of_the_task(given):
    _, config = load_task("configs/classify.py", ["init=model", "data.train=t.csv", "patience=3", *given])
    assert config.resolve_defaults(16, "accuracy", 768).checkpoints.best_metric == "accuracy"
    with pytest.raises(BertJaxError, match="patience"):
        config.resolve_defaults(16, "", 768)


@pytest.mark.parametrize(
    ("examples", "best", "evaluate_every", "checkpoints_every"),
    [(16, "accuracy", 3, 3), (16, "", 3, 100), (3200, "accuracy", 100, 100), (6400, "", 200, 200)],
)
def test_small_data_are_not_measured_and_saved_at_each_step(
    tmp_path, examples, best, evaluate_every, checkpoints_every
):
    _, config = load_task("configs/classify.py", ["init=model", "data.train=t.csv"])
    resolved = config.resolve_defaults(examples, best, 768)
    assert resolved.log.evaluate_every == evaluate_every
    assert resolved.checkpoints.every == checkpoints_every


@pytest.mark.parametrize(
    ("config", "width", "rate"),
    [("classify", 768, 3e-5), ("classify", 384, 6e-5), ("classify", 32, 3e-4), ("rerank", 768, 5e-5),
     ("rerank", 384, 2e-4)],
)  # fmt: skip
def test_the_learning_rate_follows_the_width(config, width, rate):
    _, config = load_task(f"configs/{config}.py", ["init=model", "data.train=t.csv"])
    assert config.resolve_defaults(1000, "", width).optimizer.learning_rate == pytest.approx(rate)


@pytest.mark.slow
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(tmp_path, encoder_path):
    given = {
        "data.train": write_csv(tmp_path / "t.csv", marked_texts(48, 0)), "epochs": 4, "model.dropout": 0.1,
        "checkpoints.every": 3, "checkpoints.keep": 20,
    }  # fmt: skip
    whole = finetune("classify", encoder_path, tmp_path / "whole", **given)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for checkpoint in (tmp_path / "cut" / "checkpoints").iterdir():
        if int(checkpoint.name) > 9:
            shutil.rmtree(checkpoint)
    shutil.rmtree(tmp_path / "cut" / "model")
    again = finetune("classify", encoder_path, tmp_path / "cut", **given)
    assert len(whole) == 4
    for line in (*whole, *again):
        del line["time"]
    assert again == whole
    weights = [tmp_path / run / "model" / "model.safetensors" for run in ("whole", "cut")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
def test_several_labels_and_numbers_are_learnt(tmp_path, encoder_path):
    rng = random.Random(4)
    several, numbers = [], []
    for text in random_texts(160):
        has = [name for name in ("w2", "w3") if rng.random() < 0.5]
        several.append({"text": " ".join([*has, text]), "labels": has})
        numbers.append({"text": " ".join([*has, text]), "label": len(has) / 2})
    # Both words are a matter of luck for a head of initial values with so few texts, and none for a probe.
    for name, rows, kind, metric, head in (
        ("several", several, "labels", "f1_micro", "probe"),
        ("numbers", numbers, "number", "spearman", "kept"),
    ):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = {"data.train": path, "data.heldout_share": 0.2, "kind": kind, "epochs": 12, "head": head}
        lines = finetune("classify", encoder_path, tmp_path / name, **given)
        assert max(line[metric] for line in lines) > 0.85
    config = json.loads((tmp_path / "numbers" / "model" / "config.json").read_text())
    assert config["problem_type"] == "regression"
    assert isinstance(load(tmp_path / "numbers" / "model").classify("w2 w9"), float)
    assert [x.label for x in load(tmp_path / "several" / "model").classify("w3 w2 w40")] != []


@pytest.fixture(scope="module")
def tagged(tmp_path_factory, encoder_path):
    root = tmp_path_factory.mktemp("tag")
    rng = random.Random(6)
    lines = []
    for text in random_texts(160, (4, 30)):
        for word in text.split():
            lines.append(f"{word} O")
            if rng.random() < 0.2:
                lines += ["w5 B-PER", "w6 I-PER"]
        lines.append("")
    (root / "train.conll").write_text("\n".join(lines))
    found = finetune(
        "tag", encoder_path, root / "run", **{"data.train": root / "train.conll", "data.overlap": 8}
    )
    return root / "run" / "model", found


@pytest.mark.slow
def test_a_tagger_learns(tagged):
    path, found = tagged
    ours = load(path)
    assert max(line["f1"] for line in found) > 0.95
    assert [span.label for span in ours.tag("w9 w5 w6 w7")] == ["PER"]


@pytest.mark.slow
def test_transformers_gives_the_same_tags(tagged):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path, _ = tagged
    ours = load(path)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(path).eval()
    (encoding,) = ours.encode(["w9 w5 w6 w7"])
    with torch.no_grad():
        logits = theirs(torch.tensor([encoding.input_ids])).logits[0].numpy()
    np.testing.assert_allclose(outputs(ours, encoding)["tag"][0], logits, atol=1e-5)


@pytest.fixture(scope="module")
def answered(tmp_path_factory, encoder_path):
    root = tmp_path_factory.mktemp("answer")
    rng = random.Random(7)
    articles = []
    for n, text in enumerate(random_texts(240, (4, 40))):
        words = text.split()
        asked = {"id": str(n), "question": "w10", "answers": []}
        if n % 4:
            at = rng.randrange(len(words))
            words[at:at] = ["w11", "w12"]
            asked["answers"] = [{"answer_start": len(" ".join(words[:at])) + bool(at), "text": "w11 w12"}]
        asked["is_impossible"] = not asked["answers"]
        articles.append({"title": str(n), "paragraphs": [{"context": " ".join(words), "qas": [asked]}]})
    (root / "train.json").write_text(json.dumps({"version": "v2.0", "data": articles}))
    found = finetune(
        "answer", encoder_path, root / "run", epochs=10,
        **{"data.train": root / "train.json", "data.overlap": 8, "data.rows": "packed"},
    )  # fmt: skip
    return root / "run" / "model", found


@pytest.mark.slow
def test_an_answer_finder_learns(answered):
    path, found = answered
    ours = load(path)
    assert max(line["f1"] for line in found) > 0.9
    assert ours.answer("w10", "w50 w51 w11 w12 w52", may_be_missing=True).text == "w11 w12"


@pytest.mark.slow
def test_transformers_gives_the_same_answers(answered):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path, _ = answered
    ours = load(path)
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(path).eval()
    (encoding,) = ours.encode([("w10", "w50 w51 w11 w12 w52")])
    with torch.no_grad():
        out = theirs(
            torch.tensor([encoding.input_ids]), token_type_ids=torch.tensor([encoding.token_type_ids])
        )
    logits = outputs(ours, encoding)["answer"][0]
    np.testing.assert_allclose(logits, np.stack([out.start_logits[0], out.end_logits[0]], -1), atol=1e-5)


def test_the_answer_is_where_the_file_says_or_at_cls():
    text = " ".join(WORDS[:90])
    start = text.index("w60 ")
    example = Example(("w1", text), ((start, "w60 w61"),), "")
    windows = TOKENIZER.windows([example.text], max_length=40, overlap=10)[0]
    spans = [span_in(example, window) for window in windows]
    assert [span for span in spans if span["starts"]]
    for span, window in zip(spans, windows, strict=True):
        said = TOKENIZER.tokens(window.input_ids[span["starts"] : span["ends"] + 1])
        assert said in (["w60", "w61"], ["[CLS]"])
    # Cut by a window's edge it is in neither half.
    cut = Example(("w1", text), ((text.index("w35 "), "w35 w36 w37"),), "")
    edges = [span_in(cut, window) for window in TOKENIZER.windows([cut.text], max_length=40, overlap=1)[0]]
    assert edges[0] == {"starts": 0, "ends": 0}


@pytest.mark.slow
def test_a_head_begins_as_a_probe_where_one_can_learn_its_kind():
    classes, answers = (
        dataclasses.replace(make(name)[0], probe=True)
        for make, name in ((classify_pieces, "classes"), (answer_pieces, "answers"))
    )
    assert classes.starts_from_probe and not answers.starts_from_probe
    assert not ContrastiveTask(classes.layout, classes.kind, probe=True).starts_from_probe, "it ends as one"


def test_class_weights_and_windows_weigh_as_they_should():
    task, pieces = classify_pieces("classes")
    examples = [Example("", label, "") for label in "aaab"]
    assert balanced_class_weights(KINDS["classes"](("a", "b")), examples) == pytest.approx((2 / 3, 2))
    weighted = dataclasses.replace(task, class_weights=(1.0, 2.0, 5.0))
    batch = {"labels": np.array([0, 1, 2]), "label_weights": np.array([1.0, 1.0, 0.5])}
    loss = weighted.losses({"classify": np.zeros((3, 3), np.float32)}, batch)["classify_loss"]
    assert float(loss.weight) == 1 + 2 + 2.5
    long = [Example(text, label, "") for text, label in zip(random_texts(3, (20, 60)), "aab", strict=True)]
    _, made = task_and_pieces("classes", long, EncodingOptions(16, "windows", 4))
    assert len(made) > 3
    for i in range(3):
        assert sum(
            float(piece.targets["label_weights"]) for piece in made if piece.example == i
        ) == pytest.approx(1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"init": ""}, "config key init is missing"),
        ({"data.train": ""}, "data.train is missing"),
        ({"data.max_length": 100}, "set --config.data.max_length=64"),
        ({"kind": "number", "class_weights": "balanced"}, "for one class per text"),
        pytest.param(
            {"checkpoints.best_metric": "f2"},
            'checkpoints.best_metric: no validation metric "f2"; known',
            marks=pytest.mark.slow,
        ),
        ({"epochs": -1}, "epochs must be"),
        ({"data.columns.label": "labl"}, "labl"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(changes, said, tmp_path, encoder_path):
    given = {
        "data.train": write_csv(tmp_path / "t.csv", marked_texts(24, 0)),
        "steps": 1 * ("epochs" not in changes),
    }
    with pytest.raises(BertJaxError) as raised:
        finetune("classify", encoder_path, tmp_path / "run", **{**given, **changes})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_inspect_shows_what_is_learnt(tmp_path, encoder_path):
    def shown(task, path, step=0):
        given = [
            f"init={encoder_path}",
            f"data.train={path}",
            f"data.heldout={path}",
            "data.batch_size=8",
            "data.overlap=8",
            "data.max_length=48",
            "epochs=3",
        ]
        return show_examples(f"configs/{task}.py", given, step, 8)

    rows = [("w1 w2", "bad"), ("w3", "good"), ("w4 w5y7", "bad"), ("w6 w7", "good")]
    assert "bad: [CLS] w4 w5y7 [SEP]" in shown("classify", write_csv(tmp_path / "t.csv", rows * 2))
    with pytest.raises(BertJaxError, match="--step"):
        shown("classify", tmp_path / "t.csv", 3)
    (tmp_path / "t.conll").write_text("w1 O\nw5y7 B-PER\nw6 I-PER\n\nw9 O\n\n" * 4)
    assert "[CLS] w1 w5/B-PERy7 w6/I-PER [SEP]" in shown("tag", tmp_path / "t.conll")
    answers = {"text": ["w3 w4"], "answer_start": [3]}
    asked = [{"question": f"w{n}", "context": "w2 w3 w4 w5", "answers": answers} for n in range(8)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    assert "w2 w3/answer w4/answer w5 [SEP]" in shown("answer", tmp_path / "t.jsonl")
