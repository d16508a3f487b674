"""`bert-jax train`: what a person gets wrong is told in one line, before anything is computed."""

from itertools import islice

import numpy as np
import pytest

import bert_jax
from bert_jax.command import train
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.tasks import load_config, pretrain
from bert_jax.training.task import Task
from bert_jax.training.workdir import Workdir
from tests.support.fake_hub import TAKEN, running_hub
from tests.support.model_outputs import compute_outputs
from tests.support.pretraining_runs import logged_metrics, make_corpus, train_command
from tests.support.project import ROOT
from tests.support.small_models import write_model


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("verb"))


def told(capsys, corpus, workdir, *flags) -> str:
    settings = train_command(corpus, workdir)[3:]
    code = main([*settings, *flags])
    output = capsys.readouterr()
    assert code == 1, output
    *log, line = output.err.splitlines()
    assert line.startswith("bert-jax train: ") and not any(line.startswith("bert-jax") for line in log), (
        output.err
    )
    return line


@pytest.mark.parametrize(
    ("flag", "output"),
    [
        (
            "optimizer.learning_rat=1",
            'unknown config key optimizer.learning_rat; did you mean "optimizer.learning_rate"?',
        ),
        (
            "optimiser.learning_rate=1",
            'unknown config key optimiser.learning_rate; did you mean "optimizer.learning_rate"?',
        ),
        ("rate=1", 'unknown config key rate; did you mean "optimizer.learning_rate"?'),
        ("mesh.data=x", "mesh.data"),
        ("optimizer.name=lion", "config key optimizer.name cannot be 'lion'; known: adam, lamb"),
        ("task=pretrian", 'no task "pretrian"; did you mean "pretrain"?'),
        (
            "mesh.data=3",
            "the sizes of the mesh (mesh.data=3, mesh.fsdp=1, mesh.tensor=1) do not fit 1 device: their product must "
            "divide 1, and at most one may be -1",
        ),
        (
            "mesh.gradient_accumulation_steps=3",
            "8 rows",
        ),
        ("model.vocab_size=77", "model.vocab_size is 77, but the tokenizer of the corpus has 1000 entries"),
        ("model.max_position_embeddings=16", "set --config.model.max_position_embeddings=24"),
        ("init=nowhere", 'no directory "nowhere" here'),
        ("first_step=5", "first_step=5 needs a model directory to go on from"),
        ("steps=-2", "not -2"),
    ],
)
def test_wrong_settings(flag, output, capsys, corpus, tmp_path):
    assert output in told(capsys, corpus, tmp_path / "run", f"--config.{flag}")
    assert not (tmp_path / "run").exists(), "nothing is begun"


def test_the_finished_model_is_pushed_to_a_private_repository(corpus, tmp_path, monkeypatch):
    workdir = tmp_path / "run"

    def start_training(*_) -> None:
        write_model(tmp_path / "drawn")
        bert_jax.load(tmp_path / "drawn").save(workdir / "model")

    monkeypatch.setattr(train, "start_training", start_training)
    with running_hub() as hub:
        assert main([*train_command(corpus, workdir)[3:], "--push", "me/tiny"]) == 0
    files = {path.name: path.read_bytes() for path in (workdir / "model").iterdir()}
    assert "model.safetensors" in files and hub.files["me/tiny", "main"] == files
    assert hub.visibilities["me/tiny"] == "private"


def test_a_repository_of_somebody_else_is_refused_before_the_run_begins(capsys, corpus, tmp_path):
    with running_hub():
        assert "may not write" in told(capsys, corpus, tmp_path / "run", "--push", TAKEN)
    assert not (tmp_path / "run").exists()


def test_a_key_of_the_file_that_nothing_reads(capsys, corpus, tmp_path):
    path = tmp_path / "config.py"
    path.write_text('def get_config():\n    return {"task": "pretrain", "optimizer": {"warmup_step": 3}}\n')
    assert main(["train", "--config", str(path), "--workdir", str(tmp_path / "run")]) == 1
    assert (
        'unknown config key optimizer.warmup_step; did you mean "optimizer.warmup_steps"?'
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_corpus_that_changed_since_the_run_began(capsys, corpus, tmp_path):
    workdir = tmp_path / "run"
    spec, *flags = train_command(corpus, workdir)[5:]
    overrides = [flag.removeprefix("--config.") for flag in flags if flag.startswith("--config.")]
    config = load_config(spec, overrides)[1]
    task, data, _ = pretrain.open(config, ModelDirectories())
    begun = Workdir(workdir)
    begun.claim()
    begun.record_or_check(config, data, task.layouts)
    begun.close()
    other = tmp_path / "other"
    other.mkdir()
    output = told(capsys, make_corpus(other, seed=6), workdir)
    assert f"{workdir} was started with other data: corpus 0 was" in output
    assert "--workdir" in output


@pytest.mark.slow
def test_a_run_of_no_steps_measures_what_others_begin_with(corpus, tmp_path):
    workdir = tmp_path / "run"
    arguments = [*train_command(corpus, workdir)[3:], "--config.steps=0"]
    for _ in range(2):  # the second has nothing left to do
        assert main(arguments) == 0
        (line,) = logged_metrics(workdir)
        assert (line["step"], line["kind"]) == (0, "validation")
    assert 0.5 < line["mlm_loss"] / np.log(1000) < 1.5, "it has learnt nothing"
    model = bert_jax.load(workdir / "model")
    # Made again from the batches, with the model as anyone opens it.
    spec, *flags = train_command(corpus, workdir)[5:]
    overrides = [flag.removeprefix("--config.") for flag in flags if flag.startswith("--config.")]
    _, data, config = pretrain.open(load_config(spec, overrides)[1], ModelDirectories())
    hits = []
    for batch in islice(data.validation_batches(data.row_length(0), 0, 1), config.log.max_eval_batches):
        sentences = {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
        logits = compute_outputs(model, sentences)["mlm"]
        for row, place in np.argwhere(batch["target_weights"] > 0):
            best = np.argsort(-logits[row, batch["target_positions"][row, place]])[:5]
            hits.append(batch["targets"][row, place] in best)
    assert line["mlm_top5_accuracy"] == pytest.approx(np.mean(hits))


def test_recipes_of_the_config_file():
    spec = f"{ROOT}/configs/pretrain.py"
    base = load_config(f"{spec}:base", [])[1]
    # The numbers of the paper.
    assert (base.data.batch_size, base.steps, base.data.lengths) == (256, 1_000_000, (128, 512))
    optimizer = base.optimizer
    assert (optimizer.name, optimizer.learning_rate, optimizer.warmup_steps, optimizer.weight_decay) == (
        "adam",
        1e-4,
        10_000,
        0.01,
    )
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.max_grad_norm) == (
        0.9,
        0.999,
        1e-6,
        1.0,
    )
    assert optimizer.schedule == "linear"
    assert load_config(f"{spec}:large", [])[1].model.num_hidden_layers == 24
    roberta = load_config(f"{spec}:base,roberta", [])[1]
    assert pretrain.PretrainTask.from_config(roberta, ModelDirectories()).layout.heads == ("mlm",)
    assert (roberta.data.batch_size, roberta.optimizer.beta2) == (8192, 0.98)
    assert load_config(f"{spec}:large,lamb", [])[1].optimizer.name == "lamb"
    laptop = load_config(f"{spec}:tiny,laptop", [])[1]
    assert (laptop.steps, laptop.data.batch_size, laptop.data.lengths, laptop.data.mlm_probability) == (
        2000,
        64,
        (64,),
        0.4,
    )
    assert load_config(f"{spec}:albert-base,laptop", [])[1].data.sentence_objective == "sentence_order"


@pytest.mark.parametrize("name", ["best_metric", "features", "losses"])
def test_what_a_task_does_not_define_is_said(name):
    task = Task(pretrain.PretrainTask.from_config(pretrain.Config(), ModelDirectories()).layout)
    arguments = {"best_metric": None, "features": (1, 8), "losses": ({}, {})}[name]
    with pytest.raises(BertJaxError, match=f"the task Task does not define `{name}`"):
        asked = getattr(task, name)
        asked(*arguments)
