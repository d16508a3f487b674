"""Values out of range and numbers that are not finite: refused at once, wherever they come from."""

import math
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.command.main import main
from bert_jax.core import config as configs
from bert_jax.core.errors import BertJaxError, NonFiniteError, suggest_name
from bert_jax.core.files import to_json
from bert_jax.hub import model_directory as hub
from bert_jax.tasks import TASKS
from bert_jax.training.log import MetricsLog, read_metrics
from bert_jax.training.loop import train
from tests.hostile.commands import NO_NUMBERS, keys_of
from tests.hostile.outcomes import LONGEST
from tests.support.cases import long_except
from tests.support.tiny_pretraining import Batches, tiny_pretraining

NEEDED = {"pretrain": {}, "classify": {"init": "m", "data": {"train": "t"}}}
NEEDED |= dict.fromkeys(("tag", "answer", "embed", "sparse", "late_interaction"), NEEDED["classify"])
NUMERIC = [
    (task, key, kind)
    for task in NEEDED
    for key, kind in keys_of(TASKS[task].Config)
    if kind in (int, float, tuple[float, ...], tuple[int, ...])
]


@pytest.mark.slow
@pytest.mark.parametrize("task", long_except(NEEDED, ["pretrain", "embed"]))
def test_no_number_of_a_config_may_be_infinite_or_none_or_without_bounds(task):
    """Each key, as an override and as a config file's value."""
    for key, kind in [(key, kind) for name, key, kind in NUMERIC if name == task]:
        for text in (*NO_NUMBERS, f"-{'9' * 30}", "None", "True", "[1j]"):
            if kind in (int, float) or text not in ("", "None"):
                refused(task, [f"{key}={text}"])
        for value in (math.nan, math.inf, -math.inf, 10**400, None, "1", True, np.zeros(2)):
            changed: dict = {}
            inner = changed
            *outer, last = key.split(".")
            for name in outer:
                inner = inner.setdefault(name, {})
            inner[last] = value if kind in (int, float) else (value,)
            refused(task, [], changed)


def refused(task: str, overrides: list[str], values: dict | None = None) -> None:
    given = dict(NEEDED[task])
    for name, value in (values or {}).items():
        given[name] = given.get(name, {}) | value if isinstance(value, dict) else value
    with pytest.raises(BertJaxError) as raised:
        print(overrides, values, configs.parse_config(given, overrides, TASKS[task].Config))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < LONGEST


def test_more_frozen_layers_than_there_are(tmp_path):
    task, config = tiny_pretraining(frozen_layers=2)
    with pytest.raises(BertJaxError, match="optimizer.frozen_layers"):
        train(task, Batches(), config, tmp_path)


@pytest.mark.slow
def test_a_metric_that_nothing_measures_is_said_before_the_first_step(tmp_path):
    task, config = tiny_pretraining(checkpoint_best_metric="mlm_los")
    with pytest.raises(BertJaxError, match='no validation metric "mlm_los"; did you mean "mlm_loss"'):
        train(task, Batches(), config, tmp_path)
    assert read_metrics(tmp_path / "metrics.jsonl") == []


@pytest.mark.ci
def test_a_run_that_ends_in_numbers_that_are_not_finite_saves_no_model(tmp_path):
    task, config = tiny_pretraining(
        steps=9, learning_rate=1e3, weight_decay=1e3, warmup_steps=0, log_evaluate_every=9,
        checkpoint_every=9,
    )  # fmt: skip
    with pytest.raises(NonFiniteError):
        train(task, Batches(), config, tmp_path)
    assert not (tmp_path / "model").exists()


# Weights of strangers.


def damaged(small, tmp_path, name: str, change) -> str:
    copy = shutil.copytree(small / name, tmp_path / name)
    tensors = load_file(copy / "model.safetensors")
    first = "bert.embeddings.word_embeddings.weight"
    save_file(tensors | {first: change(tensors[first].copy())}, copy / "model.safetensors")
    return str(copy)


def no_number(array: np.ndarray) -> np.ndarray:
    array[7, 3] = np.nan
    return array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (no_number, "word_embeddings.weight"),
        (lambda array: array.astype("int8"), "word_embeddings.weight has the type int8, which is not float"),
        (lambda array: np.full(array.shape, 1e300), "finite"),
    ],
    ids=["no number", "no floats", "beyond 32 bits"],
)
def test_weights_that_mean_nothing(change, message, small, tmp_path):
    with pytest.raises(BertJaxError, match=message):
        bert_jax.load(damaged(small, tmp_path, "masked", change))


@pytest.mark.slow
def test_finite_weights_whose_results_are_not(small, tmp_path, capsys):
    model = damaged(small, tmp_path, "masked", lambda array: np.full_like(array, 3e38))
    assert main(["embed", "--model", model, "--input", str(small / "lines.txt")]) == 1
    told = capsys.readouterr()
    assert "finite" in told.err and not told.out


def test_what_is_not_finite_is_not_saved(small, tmp_path):
    model = bert_jax.load(small / "masked")
    params = model.params
    params["encoder"]["embeddings"]["words"] = np.full_like(params["encoder"]["embeddings"]["words"], np.inf)
    with pytest.raises(NonFiniteError, match="1 of its"):
        hub.save_model(tmp_path / "out", model.layout, params)
    assert not (tmp_path / "out").exists()


# JSON


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": [1.0, -math.inf]}])
def test_json_has_no_word_for_it(value):
    with pytest.raises(BertJaxError, match="finite"):
        to_json(value)


def test_a_norm_that_is_not_finite_is_null_in_the_log(tmp_path):
    log = MetricsLog(tmp_path, tmp_path / "metrics.jsonl", 0, 1, quiet=False)
    log.write_line("train", 1, {"loss": 1.0, "gradient_norm": math.inf})
    log.close()
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert '"gradient_norm"' in line


# Messages


@pytest.mark.slow
def test_a_table_of_a_hundred_thousand_columns_makes_a_short_line(tmp_path, small, capsys):
    names = ",".join(f"column {n}" for n in range(10**5))
    (tmp_path / "wide.csv").write_text(f"{names}\n{names}\n")
    assert main(["evaluate", "--model", str(small / "classifier"), "--data", str(tmp_path / "wide.csv")]) == 1
    told = capsys.readouterr().err
    assert "column" in told and told.count("\n") == 1 and len(told) < LONGEST
    assert len(suggest_name("x", names.split(","))) < LONGEST


def test_a_message_is_one_line_that_a_terminal_shows():
    message = str(BertJaxError("no file a\nb\x1b[2J" + "c" * 9999 + "; name another"))
    assert message.startswith("no file a\\nb\\x1b[2Jccc") and message.endswith("; name another")
    assert len(message) < LONGEST and message.isprintable()
