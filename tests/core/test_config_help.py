"""The keys of configs: each has a meaning and stands in the reference, and other libraries' names lead to it."""

import json
import os
import re

import pytest

from bert_jax.command.main import main, make_parser
from bert_jax.core.config import apply_override, config_fields
from bert_jax.core.config_files import bundled_config_paths, bundled_configs, find_config_file
from bert_jax.core.config_help import list_config_keys
from bert_jax.core.errors import BertJaxError
from bert_jax.core.synonyms import MEANINGS, hint_for, proposals
from bert_jax.tasks import TASKS
from tests.support.project import ROOT

NAMES = {task: list(config_fields(TASKS[task].Config)) for task in TASKS.names()}
# What users of transformers and sentence-transformers type, and the keys that are meant: the first that a task has.
TYPED = {
    "lr": ("optimizer.learning_rate",),
    "learning_rate": ("optimizer.learning_rate",),
    "epochs": ("epochs", "steps"),
    "num_train_epochs": ("epochs", "steps"),
    "batch_size": ("data.batch_size",),
    "per_device_train_batch_size": ("data.batch_size",),
    "max_length": ("data.max_length", "data.lengths"),
    "max_seq_length": ("data.max_length", "data.lengths"),
    "warmup_steps": ("optimizer.warmup_steps",),
    "warmup_ratio": ("optimizer.warmup_steps",),
    "weight_decay": ("optimizer.weight_decay",),
    "dropout": ("model.hidden_dropout_prob",),
    "output_dir": ("--workdir",),
    "train_file": ("data.train", "data.corpora"),
    "fp16": ("model.dtype=bfloat16",),
    "bf16": ("model.dtype=bfloat16",),
    "gradient_checkpointing": ("model.remat=full",),
    "gradient_accumulation_steps": ("mesh.gradient_accumulation_steps",),
    "logging_steps": ("log.every",),
    "save_steps": ("checkpoints.every",),
    "model_name_or_path": ("init",),
}


@pytest.mark.parametrize("task", NAMES)
def test_every_key_has_a_meaning(task):
    keys = list_config_keys(TASKS[task].Config)
    assert [key.name for key in keys if not key.meaning] == []
    # As a phrase: it stands behind the name of its key, and before what it is by default.
    assert [key.meaning for key in keys if key.meaning.endswith(".")] == []


@pytest.mark.parametrize("task", NAMES)
def test_the_choices_that_a_meaning_explains_exist(task):
    keys = [key for key in list_config_keys(TASKS[task].Config) if key.has_choices]
    explained = {key: set(re.findall(r"(?:^|; )(\w+): ", key.meaning)) for key in keys}
    assert any(explained.values())
    unknown = {key.name: words - set(key.allowed.split(", ")) for key, words in explained.items()}
    assert not {name: words for name, words in unknown.items() if words}


def test_the_page_of_configs_lists_all_recipes():
    shown = (ROOT / "configs/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", shown, re.M)
    assert rows == [(recipe.name, recipe.purpose) for recipe in bundled_configs()]


@pytest.mark.parametrize("task", NAMES)
def test_names_of_other_libraries_lead_to_keys_that_are_read(task):
    named = [name for names in MEANINGS.values() for name in names.split()]
    assert len(named) == len(set(named)), "a name has two meanings"
    flags = make_parser("train").format_help()
    for name in named:
        for proposal in proposals(name, NAMES[task]):
            if proposal.startswith("--"):
                assert f"{proposal} " in flags
            elif "=" in proposal:
                apply_override({}, proposal, TASKS[task].Config)
            else:
                assert proposal in NAMES[task]


@pytest.mark.parametrize("name", TYPED)
def test_what_users_of_other_libraries_type(name):
    for task, known in NAMES.items():
        wanted = next(key for key in TYPED[name] if key[:2] == "--" or key.partition("=")[0] in known)
        if wanted == name:
            continue
        with pytest.raises(BertJaxError) as refused:
            apply_override({}, f"{name}=1", TASKS[task].Config)
        assert str(refused.value) == f'unknown config key {name}; did you mean "{wanted}"?'


def test_every_key_that_is_proposed_is_one_of_some_task():
    everywhere = {name for names in NAMES.values() for name in names}
    proposed = {key.partition("=")[0] for keys in MEANINGS for key in keys.split() if key[:2] != "--"}
    assert proposed - everywhere == set()


def test_what_is_misspelt_or_in_another_section():
    assert hint_for("optimiser.learning_rat", NAMES["embed"], []) == 'did you mean "optimizer.learning_rate"?'
    assert hint_for("seeed", NAMES["embed"], []) == 'did you mean "seed"?'
    assert (
        hint_for("optimizer.learning_rate", NAMES["embed"], []) == 'did you mean "optimizer.learning_rate"?'
    )
    assert hint_for("seeds", NAMES["embed"], []) == 'did you mean "num_seeds"?'
    assert hint_for("model.zzz", NAMES["embed"], ["dtype"]) == "known: dtype"


def test_a_config_is_found_by_its_bare_name_from_any_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classify").touch()  # stands in no way
    for place in ("classify", "configs/classify.py", "classify.py"):
        assert find_config_file(place) == ROOT / "configs/classify.py"
    own = tmp_path / "configs/classify.py"
    own.parent.mkdir()
    own.touch()
    assert find_config_file("configs/classify.py").resolve() == own
    with pytest.raises(
        BertJaxError, match="one of answer, classify, .*, rerank, sparse, tag, which are installed"
    ):
        find_config_file("clasify")
    assert os.listdir(ROOT / "configs") and bundled_config_paths().keys() == {
        path.stem for path in (ROOT / "configs").glob("*.py")
    }


def test_the_keys_of_a_config_as_lines_and_as_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ["config", "classify:mrpc", "--config.optimizer.learning_rate=2e-5"]
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and not any("\x1b" in line for line in lines)
    (rate,) = [n for n, line in enumerate(lines) if line.startswith("  learning_rate ")]
    of_rate = " ".join(" ".join(lines[rate : rate + 6]).split())
    assert of_rate.split()[1] == "*2e-05" and "(default: 0)" in of_rate
    meanings = " ".join(" ".join(lines).split())
    assert "the faster one on this device; one of: float32, bfloat16, auto" in meanings
    assert (
        "one of: single_label_classification, multi_label_classification, regression, or one of your own"
        in meanings
    )
    assert lines[-2].startswith("This config cannot run yet: config key init is missing")
    assert main([*asked, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    changed = {key["name"]: key["value"] for key in facts["keys"] if key["value"] != key["default"]}
    assert changed == {
        "task": "classify",
        "data.train": "tfds:glue/mrpc:train",
        "data.validation": "tfds:glue/mrpc:validation",
        "checkpoints.best_metric": "f1",
        "optimizer.learning_rate": 2e-5,
    }
    assert [key["name"] for key in facts["keys"]] == NAMES["classify"]
