"""Training from Python: the runs of the command, of files and of what a program holds."""

import gc
import runpy
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from ml_collections import ConfigDict

import bert_jax
from bert_jax import tasks
from bert_jax.core.arguments import use_python_spelling
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import print_line
from bert_jax.hub import model_directory as hub
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.runs import finetune as finetuning
from bert_jax.runs.finetune import are_tagged, check_series
from bert_jax.runs.train import config_values, save_init_model
from bert_jax.text.tables import read_table_rows
from bert_jax.text.tokenizer import BERT_NAMES
from bert_jax.text.wordpiece import WordPiece
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from bert_jax.training.stop_signal import RunStopped, StopSignal
from bert_jax.training.task import Task
from tests.support.finetuning_runs import finetune
from tests.support.project import ROOT
from tests.support.texts import marked_texts, random_texts
from tests.support.tiny_encoder import ENCODER_CONFIG

KEYS = {
    "epochs": 1, "report": False, "head_init": "pretrained", "optimizer.learning_rate": 3e-3, "log.every": 5,
    "data": {"max_length": 32, "batch_size": 8, "folds": 0}, "model": {"hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0},
}  # fmt: skip


@pytest.fixture(scope="module")
def frames():
    return [
        pd.DataFrame(marked_texts(count, seed), columns=["text", "label"])
        for seed, count in enumerate((40, 16))
    ]


@pytest.mark.ci
def test_the_rows_of_a_program_are_learnt_as_those_of_a_file(frames, encoder_path, tmp_path, capsys):
    for name, frame in zip(("train", "dev"), frames, strict=True):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    files = {"data.train": tmp_path / "train.csv", "data.validation": tmp_path / "dev.csv"}
    finetune("classify", encoder_path, tmp_path / "command", epochs=1, **files, **{"data.batching": "packed"})
    held = frames[1]["text"].tolist(), frames[1]["label"].to_numpy()
    run = bert_jax.finetune(
        encoder_path, *(frames[0][name] for name in ("text", "label")), validation=held, **KEYS
    )
    assert f"{run.workdir} is temporary; run.model.save(DIR) keeps the model" in capsys.readouterr().err
    weights = [
        Path(folder, "model/model.safetensors").read_bytes() for folder in (run.workdir, tmp_path / "command")
    ]
    assert weights[0] == weights[1]
    rows = pd.DataFrame(run.metrics)
    last = rows[rows.kind == "validation"].iloc[-1]
    assert run.scores["accuracy"] == last.accuracy and last.seconds > 0
    assert run.report is None and f"accuracy {last.accuracy:.4g}" in repr(run)
    assert set(run.model.labels) == {"bad", "good"}
    kept, opened = run.workdir, run.model
    del run
    gc.collect()
    assert not kept.exists() and opened.classify("w0").label in opened.labels


def test_a_config_is_named_or_given():
    assert (
        config_values("classify")["task"] == config_values("configs/classify.py:mrpc")["task"] == "classify"
    )
    assert config_values(ConfigDict({"task": "tag"})) == config_values({"task": "tag"}) == {"task": "tag"}
    with pytest.raises(BertJaxError, match="config"):
        bert_jax.train(3)


def test_what_labels_ask_for():
    words, pairs = [["a", "b", "c"], ["d"]], [("a", "b"), ("c", "d")]
    assert are_tagged(words, [["X", "O", "O"], ["O"]]) and are_tagged(words, [["X"], ["O"]])
    assert not are_tagged(pairs, [["X", "Y"], ["X"]]), "several labels of pairs"
    assert not are_tagged([["a", "b"]], [["X", "Y", "Z"]]), "of a pair that is a list"
    series = pd.Series(["a", "b"], index=[7, 8])
    assert check_series(series, np.array([1, 0])) == (["a", "b"], [1, 0])
    assert check_series([np.array(["a", "b"])], [np.array(["X", "O"])]) == ([["a", "b"]], [["X", "O"]])


@pytest.mark.parametrize(
    ("texts", "labels", "keys", "message"),
    [
        (["a"], ["x", "y"], {}, "1 texts"),
        (
            pd.Series(["a", np.nan, " ", "b"]),
            ["x", "y", "x", None],
            {},
            r'texts\[1\] is empty \(nan\); bad examples: 3 of 4, which data={"columns": {"skip_bad": True}} skips',
        ),
        (["a", "b"], ["x", None], {}, r"labels\[1\].*None.*1 of 2"),
        (["a", "b"], ["x", "y"], {"validation": (["c"], [""])}, r"validation\[1\]\[0\]"),
        (["a"], ["x"], {"workdri": "runs"}, 'did you mean "workdir"'),
        (["a"], ["x"], {"data": {"batchsize": 3}}, "data.batch_size"),
        (["a"], ["x"], {"validation": ["b"]}, "validation"),
        ("abc", ["x"], {}, "a text"),
        (pd.DataFrame({"text": ["a"]}), ["x"], {}, "DataFrame"),
        ([("a", "b", "c")], ["x"], {}, r"texts\[0\]"),
        ([["a", "b", "c"], ["d"]], [["O", "O"], ["O"]], {}, r"texts\[0\].*3"),
    ],
)  # fmt: skip
def test_what_cannot_be_learnt_is_told_in_one_line(texts, labels, keys, message, encoder_path):
    with pytest.raises(BertJaxError, match=message):
        bert_jax.finetune(encoder_path, texts, labels, **keys)


def test_errors_and_lines_name_arguments_in_python(encoder_path, capsys):
    with pytest.raises(BertJaxError, match="give a file, data.train=train.csv, or tfds"):
        bert_jax.train("classify", init=encoder_path)
    with use_python_spelling():
        print_line("label more, or set --config.data.folds=0 and --config.seed")
    print_line("--config.data.folds=0")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["label more, or set data.folds=0 and seed", "--config.data.folds=0"]


def test_incomplete_examples_are_skipped_if_asked(monkeypatch):
    read = []
    monkeypatch.setattr(
        finetuning, "start_run", lambda values, *_: read.extend(read_table_rows(values["data"]["train"]))
    )
    with pytest.warns(match=r"2 of 4.*texts\[1\]"):
        bert_jax.finetune(
            "m", ["a", None, "c", "d"], ["x", "y", "", "x"], data={"columns": {"skip_bad": True}}
        )
    assert [where for where, _ in read] == ["texts[0]", "texts[3]"]


@pytest.mark.slow
def test_a_config_is_a_dict_or_keys_and_its_model_may_be_loaded(frames, encoder_path, tmp_path, capsys):
    frames[0].to_csv(tmp_path / "train.csv", index=False)
    keys = KEYS | {"data.train": tmp_path / "train.csv", "data.calibration_ratio": 0}
    keys |= {"head_init": "linear_probe", "method": "linear_probe"}
    begun = bert_jax.load(encoder_path)
    first = bert_jax.train(ConfigDict({"task": "classify"}), workdir=tmp_path / "run", init=begun, **keys)
    again = bert_jax.train(task="classify", workdir=tmp_path / "run", init=begun, **keys)
    shown = capsys.readouterr()
    assert "this run has already finished, at step 0" in shown.err and not shown.out, "results alone go there"
    assert first.scores == again.scores != {} and first.metrics == again.metrics != []
    gc.collect()
    assert first.workdir.exists(), "it is the user's"


def test_a_run_goes_on_with_the_loaded_model_that_it_was_begun_with(encoder_path, tmp_path):
    begun = bert_jax.load(encoder_path)
    other = begun.with_params(jax.tree.map(lambda leaf: leaf + 1, begun.params))
    assert save_init_model(begun, tmp_path) == tmp_path / "init"
    weights = (tmp_path / "init/model.safetensors").read_bytes()
    assert save_init_model(begun, tmp_path) == tmp_path / "init"
    with pytest.raises(BertJaxError, match="workdir"):
        save_init_model(other, tmp_path)
    assert (tmp_path / "init/model.safetensors").read_bytes() == weights
    assert sorted(path.name for path in tmp_path.iterdir()) == ["init"]


def test_texts_and_labels_are_examples_as_those_of_files(encoder_path, monkeypatch):
    opened = []

    def begin(values, workdir, command):
        module, config = tasks.read_config(values, [])
        opened.append((module.open(config, ModelDirectories())[0], command))

    monkeypatch.setattr(finetuning, "start_run", begin)
    shown = random_texts(24)
    first, second = shown[:12], shown[12:]
    tags = [["O" if word < "w3" else "B-X" for word in text.split()] for text in first]
    words = [np.array(text.split()) for text in first]
    pairs = list(zip(first, second, strict=True))
    short = KEYS | {"data.overlap": 8}
    bert_jax.finetune(encoder_path, pd.Series(words), pd.Series(map(np.array, tags)), **short)
    bert_jax.finetune(encoder_path, pairs, [("a", "b"), {"b"}, []] * 4, **short)
    bert_jax.finetune(encoder_path, np.array(first), np.linspace(0, 1, 12), **short)
    bert_jax.finetune(encoder_path, iter(first), (n % 3 for n in range(12)), **short)
    kinds = [task.kind.name for task, _ in opened]
    assert kinds == ["tags", "labels", "number", "classes"]
    examples = [sorted((*t.finish_inputs.train, *t.finish_inputs.validation), key=place) for t, _ in opened]
    assert [(e.text, e.label) for e in examples[0]] == [
        (tuple(w), tuple(t)) for w, t in zip(words, tags, strict=True)
    ]
    assert [e.text for e in examples[1]] == pairs
    assert [e.label for e in examples[1]][:3] == [("a", "b"), ("b",), ()]
    assert [e.label for e in examples[2]] == np.linspace(0, 1, 12).tolist()
    assert [e.label for e in examples[3]] == ["0", "1", "2"] * 4
    assert opened[0][1].startswith(f"bert_jax.finetune({str(encoder_path)!r}, texts, labels, epochs=1")


def place(example) -> int:
    return int(example.where.split("[")[1].rstrip("]"))


@pytest.mark.slow
def test_a_loop_of_your_own_learns(tmp_path, monkeypatch):
    """The example of bert_jax/README.md, on a model that is tiny and new, which takes a higher rate."""
    source = (ROOT / "tests/examples/custom_loop.py").read_text()
    shown = ["a", "fine", "film", "dull", "and", "long", "what", "joy", "waste", "of", "time"]
    words = WordPiece.from_vocabulary([*BERT_NAMES.values(), *shown])
    layout = hub.Layout(ENCODER_CONFIG.replace(vocab_size=words.size), heads=("mlm",), pooler=False)
    params = jax.jit(lambda: init_random_params(Task(layout), RunConfig()))()
    hub.save_model(tmp_path / "model", layout, jax.device_get(params), words)
    monkeypatch.chdir(tmp_path)
    assert "adamw(5e-5)" in source
    (tmp_path / "loop.py").write_text(source.replace("adamw(5e-5)", "adamw(1e-2)"))
    loop = runpy.run_path(str(tmp_path / "loop.py"))
    trained = bert_jax.load("trained")
    assert [label.label for label in trained.classify(loop["texts"][:4])] == ["good", "bad", "good", "bad"]


def test_ctrl_c_leaves_a_run_without_a_model_and_sigterm_ends_the_program(tmp_path, monkeypatch):
    def told(number):
        def stopped(*_):
            raise RunStopped(number)

        monkeypatch.setattr("bert_jax.runs.train.run_from_config", stopped)
        return bert_jax.train("pretrain", workdir=tmp_path)

    unfinished = told(signal.SIGINT)
    assert "stopped before its end" in repr(unfinished) and unfinished.scores == {}
    with pytest.raises(BertJaxError, match="repeat the call with the same workdir"):
        unfinished.model  # noqa: B018
    for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        with pytest.raises(SystemExit) as ended:
            told(number)
        assert ended.value.code == code


def test_a_run_in_a_thread_catches_no_signals():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: StopSignal().__enter__().caught).result() == []
