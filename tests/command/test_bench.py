"""`bert-jax bench`: all sides compute the same, and the figures are those of what was measured."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

import bert_jax
from bert_jax.bench import pretrain, size, texts, tokenizers
from bert_jax.bench.finetune import TorchFinetuning
from bert_jax.bench.libraries import libraries
from bert_jax.bench.turns import (
    Limits,
    Machine,
    Ratio,
    Turn,
    compared,
    contending,
    describe,
    in_turn,
    ratio,
    timed,
)
from bert_jax.command.bench import chosen_dtype
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.predictions import calibration
from bert_jax.predictions.calibration import Calibration
from tests.support.cases import long_except
from tests.support.processes import process_environment, start_process
from tests.support.project import ROOT
from tests.support.small_models import SMALL_TEXTS, write_model


class Clock:
    """A contender whose texts take a hundredth of a second each, or ten times that."""

    def __init__(self, run, slow=1.0):
        self.run_texts, self.slow, self.calls = run, slow, 0

    def __call__(self, texts, alone):
        self.calls += 1
        turn = Turn(0.01 * self.slow * len(texts), 0.005 * len(texts))
        return ([0.01 * self.slow] * len(texts) if alone else self.run_texts(texts)), turn


@pytest.mark.slow
def test_everyone_gives_the_same_logits_and_is_timed(tmp_path):
    for library in ("onnx", "onnxruntime", "transformers"):
        pytest.importorskip(library)
    write_model(tmp_path, heads=("classify",), labels=("no", "yes", "maybe"))
    # Neither transformers nor the comparison of logits minds a calibration.
    calibration.save(tmp_path, Calibration("classes", ("no", "yes", "maybe"), (2.0,)))
    contenders = {
        name: Clock(contender(str(tmp_path)), slow=1 + 9 * (name == "transformers"))
        for name, contender in texts.SUBJECTS["predict"][1].items()
    }
    results, turns = texts.compare(
        contenders, SMALL_TEXTS, np.arange(len(SMALL_TEXTS)), Limits(least=6, seconds=0)
    )
    assert max(result["apart"] for result in results.values()) < 1e-5
    for measured in ("throughput", "p50", "p99"):
        assert results["transformers"][measured] == asdict(Ratio(*[pytest.approx(10)] * 3, rounds=6))
    for name, result in results.items():
        milliseconds = 100 if name == "transformers" else 10
        assert [result[f"{p}_ms"] for p in ("p50", "p90", "p99", "short")] == pytest.approx(
            [milliseconds] * 4
        )
        assert result["texts_per_second"] == pytest.approx(1000 / milliseconds)
        assert result["cpu_ms"] == pytest.approx(5) and result["cpu"] == pytest.approx(1)
    assert len(turns) == 2 * 6 * len(contenders)
    assert {contender.calls for contender in contenders.values()} == {2 + 2 * 6}


def test_latency_is_of_every_text_that_was_given():
    """p99 is that of the one slow text among many, wherever it stands; the shortest tenth has a figure of its own."""
    given = [f"text {n}" for n in range(100)]
    seconds = {text: 1.0 if text == "text 99" else 0.01 for text in given} | {"text 0": 0.001}

    def contender(texts, alone):
        return [seconds[text] for text in texts] if alone else np.zeros(len(texts)), Turn(1.0, 1.0)

    results, _ = texts.compare({texts.OURS: contender}, given, np.arange(100), Limits(1, 0))
    ours = results[texts.OURS]
    assert ours["p50_ms"] == ours["short_ms"] == 10 and ours["p99_ms"] > 10


def test_a_model_that_is_no_classifier(tmp_path):
    write_model(tmp_path)
    with pytest.raises(BertJaxError, match='bench predict needs the head "classify"'):
        texts.measure(texts.Subject("predict", str(tmp_path)), [], Limits(1, 0))
    assert bert_jax.load(tmp_path).labels == ()


def test_of_two_calls_the_second_counts():
    calls = iter(range(8))

    def contender():
        return None, next(calls)

    taken = [turn for _, _, turn in in_turn({"a": contender, "b": contender}, [(), ()], twice=True)]
    assert taken == [1, 3, 5, 7]


def naming_its_process(name: str):
    return lambda word: (name, word, os.getpid())


def refusing(how: str):
    if how == "made":
        raise BertJaxError("no such model")

    def run(word):
        if how == "called":
            raise BertJaxError(f"cannot read {word}")
        os._exit(1)

    return run


@pytest.mark.slow
def test_contenders_take_turns_in_processes_of_their_own():
    makers = {name: (naming_its_process, name) for name in ("a", "b")}
    with contending(makers) as contenders:
        answers = list(in_turn(contenders, [("x",), ("y",)]))
        processes = [contender.process for contender in contenders.values()]
    assert [(name, *result[:2]) for name, result, _ in answers] == [
        ("a", "a", "x"), ("b", "b", "x"), ("a", "a", "y"), ("b", "b", "y"),
    ]  # fmt: skip
    assert len({result[2] for _, result, _ in answers} | {os.getpid()}) == 3
    assert not any(process.is_alive() for process in processes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "message"),
    [("made", "no such model"), ("called", "cannot read x"), ("killed", "a contender's process ended")],
)
def test_an_error_of_a_contender_is_raised_where_it_is_called(how, message):
    with pytest.raises(BertJaxError, match=message), contending({"a": (refusing, how)}) as contenders:
        contenders["a"]("x")


def test_a_busy_machine_is_marked():
    quiet = Machine(cores=2, load=0.3)
    assert not quiet.during([Turn(1.0, 0.9, 0.1), Turn(3.0, 3.0, 0.1)])["busy"]
    assert quiet.during([Turn(1.0, 0.9, 0.1), Turn(3.0, 3.0, 1.9)])["others"] == pytest.approx(0.5)
    assert quiet.during([Turn(1.0, 0.9, 0.1), Turn(3.0, 3.0, 1.9)])["busy"]
    after_another = Machine(cores=2, load=2.4)
    loaded = after_another.during([Turn(1.0, 0.9)])
    assert loaded["busy"] and "BUSY: measure again" in describe(loaded)
    assert not after_another.during([Turn(1.0, 0.9, 0.0)])["busy"]
    unknown = quiet.during([Turn(1.0, 0.9)])
    assert unknown["others"] is None and not unknown["busy"]
    assert "other programs used an unknown number of 2 cores" in describe(unknown)


def test_the_ratio_is_that_of_neighbouring_turns_and_has_an_interval():
    assert ratio([2.0], [3.0]) == Ratio(1.5, None, None, 1)
    assert str(ratio([2.0], [3.0])) == "1.50 (one round, no interval)"
    assert ratio([1.0] * 6, [6.0, 1.0, 2.0, 5.0, 3.0, 4.0]) == Ratio(3.5, 1.0, 6.0, 6)
    draws = np.exp(np.random.default_rng(0).normal(size=(2000, 15)))
    intervals = [ratio(np.ones(15), row) for row in draws]
    assert 0.95 <= np.mean([r.low <= 1 <= r.high for r in intervals]) < 0.98  # the true median is 1
    of_three = [ratio(np.ones(3), row[:3]) for row in draws]
    assert np.mean([r.low <= 1 <= r.high for r in of_three]) == pytest.approx(0.95, abs=0.015)
    assert not ratio([1.0] * 3, [2.0] * 3).narrow  # too few rounds to stop


@pytest.mark.parametrize(("spread", "rounds"), [(0.0, 6), (0.5, 40)])
def test_rounds_go_on_until_the_interval_is_narrow(spread, rounds):
    random = np.random.default_rng(0)
    contenders = {"ours": lambda: (1.0, None), "theirs": lambda: (2 + spread * random.normal(), None)}
    taken = list(compared(contenders, [()] * 40, Limits(2, 60), lambda value, _: value))
    assert len(taken) == 2 * rounds
    assert len(list(compared(contenders, [()] * 40, Limits(2, 0), lambda value, _: value))) == 4


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="the system does not tell what others use")
def test_the_processor_time_of_others_is_seen():
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        _, turn = timed(time.sleep, 1.0)
    finally:
        spinner.kill()
        spinner.wait()
    assert turn.cpu < 0.2 < turn.others and turn.seconds == pytest.approx(1.0, abs=0.3)


@pytest.mark.slow
def test_a_contender_ends_with_its_parent():
    script = f"""
from bert_jax.bench.turns import Contender
from {__name__} import sleeping
Contender(sleeping)("x")
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
        env=process_environment(),
    )  # fmt: skip
    assert int(parent.stdout.readline()) != parent.pid
    parent.kill()
    # Until the contender, who sleeps for longer, has let go of the pipe as well.
    parent.communicate(timeout=20)


def sleeping():
    def run(word):
        print(os.getpid(), flush=True)
        time.sleep(60)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("number", long_except([signal.SIGTERM, signal.SIGINT], [signal.SIGTERM]))
def test_a_bench_ends_when_it_is_told_to(number, tmp_path):
    """Its run is of a temporary directory: nothing is left, and nothing is said of going on."""
    write_model(tmp_path / "model", heads=("mlm",))
    rows = [f"the cat sat on mat {n},{('no', 'yes')[n % 2]}" for n in range(200)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]))
    (tmp_path / "scratch").mkdir()
    settings = {"init": tmp_path / "model", "data.train": tmp_path / "train.csv", "epochs": 5000,
                "data.max_length": 8}  # fmt: skip
    bench = start_process(
        [sys.executable, "-m", "bert_jax", "bench", "finetune", "--config", f"{ROOT}/configs/classify.py",
         *(f"--config.{key}={value}" for key, value in settings.items())],
        TMPDIR=str(tmp_path / "scratch"),
    )  # fmt: skip
    line = ""
    while not line.startswith("step "):
        line = bench.stdout.readline()
        assert line, "it has ended"
    bench.send_signal(number)
    begun = time.monotonic()
    output = bench.communicate(timeout=60)[0]  # until all its processes have ended
    assert time.monotonic() - begun < 5
    assert bench.returncode == 128 + number
    assert "stopp" not in output and "goes on" not in output and "Traceback" not in output
    assert os.listdir(tmp_path / "scratch") == []


@pytest.mark.long
def test_a_fine_tuning_and_that_of_transformers(tmp_path, capsys):
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    for autocast, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        with TorchFinetuning.computing(SimpleNamespace(torch=torch, autocast=autocast)):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
    write_model(tmp_path / "model", heads=("mlm",))
    rows = [f"the {('cat', 'mat')[n % 2]} sat {n},{('no', 'yes')[n % 2]}" for n in range(64)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]))
    flags = ["--config", f"{ROOT}/configs/classify.py", f"--config.init={tmp_path / 'model'}",
             f"--config.data.train={tmp_path / 'train.csv'}", "--config.data.max_length=8",
             "--config.data.calibration_share=0", "--config.epochs=3"]  # fmt: skip
    assert main(["bench", "finetune", *flags, "--seeds", "2", "--against", "transformers", "transformers-autocast",
                 "--dtypes", "float32", "bfloat16", "--json"]) == 0  # fmt: skip
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    ours, others = ["bert_jax float32", "bert_jax bfloat16"], ["transformers", "transformers-autocast"]
    assert list(results["means"]) == ours + others
    assert results["losses"][ours[0]] != results["losses"][ours[1]]
    assert set(results["machine"]) >= {"load", "busy"}
    assert [list(results["against"][name]) for name in ours] == [others, others]
    assert results["against"][ours[1]]["transformers"]["speedup"]["rounds"] == 2
    assert all(np.shape(losses) == (2, 6) for losses in results["losses"].values())  # seeds, steps
    assert (
        results["against"][ours[0]]["transformers"]["losses_apart"] > 0
    )  # heads of other initial values, and dropout
    for of_seeds in results["runs"].values():
        assert len(of_seeds) == 2
        assert all(0 <= run["accuracy"] <= 1 and run["seconds"] > 0 for run in of_seeds)
        assert all(run["cpu_seconds"] > 0 for run in of_seeds)


@pytest.mark.long
def test_a_size_beside_that_of_transformers(tmp_path, capsys):
    pytest.importorskip("torch"), pytest.importorskip("transformers")
    size.write("tiny", str(tmp_path))
    both = [side(str(tmp_path), size.Rows(2, 2, 16)) for side in (size.Ours, size.Theirs)]
    ours, theirs = (side.states() for side in both)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert ours.shape == (2, 16, 128)
    assert all(side.step() > 0 for side in both)
    weight = both[1].classifier.classifier.weight.detach().numpy().T
    before = both[0].model.params["classify"]["dense"]["kernel"]
    for after in (both[0].state.params["classify"]["dense"]["kernel"], weight):
        assert np.abs(after - before).max() == pytest.approx(
            size.RUN.optimizer.learning_rate, rel=0.05
        )  # Adam's first step
    assert main(["bench", "size", "tiny", "base", "--profile", str(tmp_path / "x.png")]) == 1
    assert "--profile draws one size" in capsys.readouterr().err


@pytest.mark.slow
def test_a_step_is_timed(capsys):
    flags = ["--size", "tiny", "--batch", "2", "--length", "32", "--steps", "2"]
    assert main(["bench", "train", *flags, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["tokens_per_second"] == pytest.approx(64 / results["seconds"])
    assert results["compile_seconds"] > 0 and results["cpu_seconds"] > 0


def test_a_missing_library_is_named_as_it_is_installed():
    with pytest.raises(BertJaxError, match="pip install no-such-library scikit-learn$"):
        libraries("no_such_library.parts", "sklearn.linear_model", "sklearn")


def test_texts_with_other_ids_are_all_printed(monkeypatch, capsys):
    texts = [f"text {n}" for n in range(30)]
    counts = {"tokens": 60, "ids": 30, "offsets": 0, "first": texts}
    monkeypatch.setattr(tokenizers, "pairs_of", lambda path: [(str(path), None, None)])
    monkeypatch.setattr(tokenizers, "compare", lambda ours, theirs, corpus: counts)
    with pytest.raises(BertJaxError, match="30 differences from transformers; the texts are above"):
        tokenizers.compare_all(["vocab"], [])
    printed = capsys.readouterr().err
    assert all(repr(text) in printed for text in texts)


def test_auto_is_the_type_that_this_device_multiplies_faster(monkeypatch):
    monkeypatch.setattr("bert_jax.models.precision.fast_dtype", {"cpu": "bfloat16"}.__getitem__)
    assert [chosen_dtype(name) for name in ("auto", "float32")] == ["bfloat16", "float32"]


@pytest.mark.parametrize(
    ("against", "message"), [("transformers", "both sides must start"), (None, "corpus")]
)
def test_a_pre_training_starts_from_a_model_if_nothing_is_compared(against, message, tmp_path):
    overrides = ["init=model", "first_step=0", f"data.corpora={tmp_path / 'corpus'}"]
    with pytest.raises(BertJaxError, match=message):
        pretrain.compare("configs/pretrain.py:tiny,laptop", overrides, str(tmp_path / "run"), against, False)
