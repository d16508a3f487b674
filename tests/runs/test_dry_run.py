"""`bert-jax train --dry-run` says what the run would do, for every task, and writes nothing."""

import json
import re

import pytest

from bert_jax import tasks
from bert_jax.command.main import main
from bert_jax.core.config_files import run_config_file
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.finetuning import cross_validation
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.runs import dry_run
from bert_jax.tasks import TASKS
from bert_jax.training import time_estimate
from bert_jax.training.time_estimate import StepTime, measure_steps
from bert_jax.training.workdir import Workdir
from tests.support.made_up_language import ENTRIES
from tests.support.pretraining_runs import make_corpus, train_command
from tests.support.small_models import SMALL_CONFIG, write_model

TEXTS = [f"the cat {'sat on ' * (n % 7)}the mat {'.' * (n // 7)}" for n in range(40)]
WRITTEN = {
    "answer": {"data": [{"paragraphs": [
        {"context": text, "qas": [{"id": text, "question": "cat", "answers": [{"answer_start": 4, "text": "cat"}]}]}
        for text in TEXTS
    ]}]},
    "classify": [{"text": text, "label": "ab"[n % 4 == 0]} for n, text in enumerate(TEXTS)],
    "embed": [{"anchor": text, "positive": text + " mat"} for text in TEXTS],
    "late_interaction": [{"anchor": text, "positive": text + " mat"} for text in TEXTS],
    "rerank": [{"query": f"cat {text}", "positive": text, "negative": f"mat {text}"} for text in TEXTS],
    "distil_classifier": [{"text": text} for text in TEXTS],
    "sparse": [{"anchor": text, "positive": text + " mat"} for text in TEXTS],
    "tag": [{"tokens": text.split(), "tags": ["B-X", *["O"] * (len(text.split()) - 1)]} for text in TEXTS],
}  # fmt: skip
OF_CORPORA = ("pretrain", "electra", "distil")
CONFIGS = {
    "distil": "distil:distilbert",
    "distil_classifier": "distil:classifier",
}  # not called as their task
SEEN = {
    "answer": "documents   36 different ones among 36 examples",
    "classify": "labels      2: a 27, b 9",
    "distil_classifier": "labels      1: bad 36",
    "embed": "data        36 groups of 2 texts, from `",
    "late_interaction": "data        36 groups of 2 texts, from `",
    "rerank": "documents   36 different ones among 72 examples",
    "sparse": "data        36 groups of 2 texts, from `",
    "tag": "labels      2: ",
} | dict.fromkeys(OF_CORPORA, "documents (")


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    root = tmp_path_factory.mktemp("dry")
    write_model(root / "model")
    write_model(root / "classifier", heads=("classify",), labels=("good", "bad"))
    write_model(
        root / "teacher",
        SMALL_CONFIG.replace(vocab_size=len(ENTRIES), max_position_embeddings=24),
        words=ENTRIES,
    )
    for task, rows in WRITTEN.items():
        lines = [json.dumps(row) for row in rows] if isinstance(rows, list) else [json.dumps(rows)]
        (root / f"{task}.{'jsonl' if isinstance(rows, list) else 'json'}").write_text("\n".join(lines))
    (root / "pretrain").mkdir()
    Corpus(make_corpus(root / "pretrain"))  # it notes its hashes when it is opened first
    return root


@pytest.fixture(autouse=True)
def quick_steps(monkeypatch):
    """Steps that are not measured, which would be compiled."""
    for user in (dry_run, cross_validation):
        monkeypatch.setattr(user, "measure_steps", lambda run, mesh, first=0: StepTime(0.5, 240.0))


def overrides(root, task: str) -> list[str]:
    if task in OF_CORPORA:
        _, *flags = train_command(root / "pretrain/corpus", root / "run")[5:]
        settings = [flag.removeprefix("--config.") for flag in flags if flag.startswith("--config.")]
        return settings if task != "distil" else [*settings, f"teacher={root / 'teacher'}", "loss.cosine=0"]
    (train,) = root.glob(f"{task}.json*")
    folds = ["data.folds=0", "data.overlap=2"] if task in ("answer", "classify", "tag") else []
    begin = f"teacher={root / 'classifier'}" if task == "distil_classifier" else f"init={root / 'model'}"
    return [begin, f"data.train={train}", "data.batch_size=8", "data.max_length=12", "epochs=4", *folds]


def shown(capsys, root, task: str, *more: str, workdir="run") -> dict[str, str]:
    settings = [f"--config.{override}" for override in (*overrides(root, task), *more)]
    command = ["train", "--config", CONFIGS.get(task, task), "--workdir", str(root / workdir), "--dry-run"]
    assert main([*command, *settings]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {line[:12].strip(): line for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS.names())
def test_what_a_run_would_do_is_said_and_nothing_is_written(task, material, capsys):
    before = set(material.rglob("*"))
    lines = shown(capsys, material, task)
    assert set(material.rglob("*")) == before
    assert any(SEEN[task] in line for line in lines.values()), lines
    # As the run itself takes them.
    module, config = tasks.read_config(run_config_file(CONFIGS.get(task, task)), overrides(material, task))
    _, data, config = module.open(config, ModelDirectories())
    assert (
        f" {data.rows_per_step} rows of " in lines["step"]
        and lines["steps"].split()[1] == f"{config.steps:,},"
    )
    assert re.search(r" about [\d.]+ MB: ", lines["memory"])
    assert lines["directory"].endswith("/run: a new run")


@pytest.mark.slow
def test_the_time_of_a_run_is_measured_unless_that_would_take_long(material, monkeypatch, capsys):
    monkeypatch.setattr(dry_run, "measure_steps", measure_steps)
    before = set(material.rglob("*"))
    time = shown(capsys, material, "classify")["time"]
    assert re.search(r" a step takes [\d.]+ s here, so 18 steps take about \d+ s; compiling and ", time)
    assert set(material.rglob("*")) == before
    monkeypatch.setattr(time_estimate, "assumed_speed", lambda mesh: 1.0)
    monkeypatch.setattr(time_estimate, "make_step", None)
    time = shown(capsys, material, "classify")["time"]
    assert "not measured, because a few steps may take more than a minute here" in time


@pytest.mark.slow
def test_a_run_that_exists_is_resumed_or_refused(material, capsys):
    module, config = tasks.read_config(run_config_file("classify"), overrides(material, "classify"))
    task, data, config = module.open(config, ModelDirectories())
    begun = Workdir(material / "begun")
    begun.claim()
    begun.record_or_check(config, data, task.layouts)
    for step in (3, config.steps):
        (begun.checkpoints / str(step)).mkdir(parents=True)
        (begun.checkpoints / str(step) / "manifest.json").touch()
        words = f"resumed at step {step}" if step == 3 else f"finished, at step {step}"
        assert words in shown(capsys, material, "classify", workdir="begun")["directory"]
    settings = [f"--config.{override}" for override in (*overrides(material, "classify"), "seed=5")]
    assert main(["train", "--config", "classify", "--workdir", str(begun.path), "--dry-run", *settings]) == 1
    assert "was started with other settings: seed was 0 and is 5" in capsys.readouterr().err


@pytest.mark.slow
def test_folds_seeds_and_no_steps(material, capsys):
    folds = shown(capsys, material, "classify", "data.folds=2", "minutes=60")
    assert "2, predicted by a linear probe on the frozen encoder; as far as time allows" in folds["folds"]
    assert "take about 4 min; before them 2 fold models with contrastive" in folds["time"]
    assert ", about 8 min; before them up to 2 fold models with fine-tuning, about 8 min" in folds["time"]
    folds = shown(capsys, material, "classify", "data.folds=2", "minutes=18")
    assert "before them up to 1 fold model with fine-tuning, about 4 min; compiling" in folds["time"]
    sweep = shown(capsys, material, "classify", "num_seeds=2", "sweep=lr=[1e-5,2e-5,3e-5]")
    assert "6, 2 of each setting: lr=1e-05; lr=2e-05;" in sweep["runs"]
    assert "take about 4 min; all 6 runs about 24 min; compiling" in sweep["time"]
    assert "none: the run measures" in shown(capsys, material, "classify", "steps=0")["steps"]
    probe = shown(capsys, material, "classify", "method=linear_probe")["steps"]
    assert "none: the head is computed by a" in probe
