"""Configs: overrides, types, and keys that nothing reads."""

import ast
import dataclasses
import subprocess
import sys
import typing
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from bert_jax.core.config import build_config, parse_config, split_names
from bert_jax.core.config_files import run_config_file
from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.data.examples import glue
from bert_jax.hub.families import FAMILIES, all_families
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.published_form import architecture
from bert_jax.models.encoder_config import BERT_SIZES, EncoderConfig
from bert_jax.models.mesh import AXES
from bert_jax.tasks import TASKS
from bert_jax.tasks import load_config as load_task
from bert_jax.tasks.pretrain import PretrainTask
from bert_jax.training.optimizer import learning_rate_factor
from bert_jax.training.warm_start import check_sizes
from tests.support.families import write_released
from tests.support.project import ROOT

PRETRAIN = str(ROOT / "configs/pretrain.py")


@dataclass(frozen=True)
class Settings:
    model: EncoderConfig
    data: DataConfig
    seed: int = 0
    steps: int = 0


def test_overrides_are_read_as_the_type_of_their_field():
    overrides = [
        "data.corpora=a,b", "data.weights=1,2.5", "data.mlm_probability=1e-1", "data.batch_size=1e3",
        "data.mask_unit=word", "data.dynamic_masking=false", "steps=5", "model.num_hidden_layers=3",
    ]  # fmt: skip
    found = parse_config(run_config_file(f"{PRETRAIN}:base"), overrides, Settings, strict=False)
    data = found.data
    assert (data.corpora, data.weights, data.mlm_probability, data.batch_size) == (
        ("a", "b"),
        (1.0, 2.5),
        0.1,
        1000,
    )
    assert (data.mask_unit, data.dynamic_masking, found.steps, found.model.num_hidden_layers) == (
        "word",
        False,
        5,
        3,
    )
    assert data.length_ratios == (0.9, 0.1)
    assert split_names("a\nb,c") == ["a", "b", "c"]


@pytest.mark.parametrize("size", BERT_SIZES)
def test_named_sizes_are_those_of_the_encoder(size):
    assert parse_config(
        run_config_file(f"{PRETRAIN}:{size}"), [], Settings, strict=False
    ).model == EncoderConfig.from_size(size)


FAMILY_CONFIGS = {size: family.model_type for family in all_families() for size in family.sizes}


@pytest.mark.parametrize("size", FAMILY_CONFIGS)
def test_a_size_of_a_family_names_it(size):
    _, config = load_task(f"{PRETRAIN}:{size}", [])
    family = FAMILIES[FAMILY_CONFIGS[size]]
    # Lower until rows get longer.
    theta = {"rotary": config.model.rotary} if family.model_type == "modernbert" else {}
    assert (
        config.model == family.config_for_size(size).replace(**theta) and config.family == family.model_type
    )
    layout = PretrainTask.from_config(config, ModelDirectories()).layout
    assert layout.family == family and layout.heads == (("mlm", "sop") if "albert" in size else ("mlm",))
    assert max(config.data.lengths) <= config.model.max_position_embeddings


@pytest.mark.slow
def test_going_on_from_a_family_takes_its_sizes_and_no_other_family(tmp_path):
    published = {"hidden_size": 24, "num_attention_heads": 3, "embedding_size": 8}
    write_released(tmp_path, "electra", published, ("mlm",))
    _, config = load_task(f"{PRETRAIN}:base", [f"init={tmp_path}", "family=albert"])
    with pytest.raises(BertJaxError, match='"electra".*"albert".*--config.family=electra'):
        PretrainTask.from_config(config, ModelDirectories())
    _, config = load_task(f"{PRETRAIN}:albert-base", [f"init={tmp_path}"])
    layout = PretrainTask.from_config(config, ModelDirectories()).layout
    assert (layout.family.model_type, layout.config.embedding_size) == ("electra", 8)


def test_recipes():
    data = parse_config(run_config_file(f"{PRETRAIN}:large,roberta"), [], Settings, strict=False).data
    assert (data.sentence_objective, data.lengths, data.batch_size) == ("none", (512,), 8192)


WRONG = {
    "data.mlm_probabilty=0.2": 'unknown config key data.mlm_probabilty; did you mean "data.mlm_probability"?',
    "dta.mlm_probability=0.2": 'unknown config key dta.mlm_probability; did you mean "data.mlm_probability"?',
    "learning_rate=1": "unknown config key learning_rate; known: ",
    "batch_size=1": 'unknown config key batch_size; did you mean "data.batch_size"?',
    "data.batch_size=x": "config key data.batch_size must be a whole number",
    "data.batch_size=2.5": "config key data.batch_size must be a whole number",
    "data.mask_unit=tokn": "config key data.mask_unit cannot be 'tokn'; did you mean \"token\"?",
    "data.dynamic_masking=3": "must be true or false",
    "data=3": "config key data is a section",
    "seed.x=1": "config key seed holds a value, not a section",
    "data.mlm_probability": "needs a value",
    "data.lengths=128": "2 data.length_ratios for 1 data.lengths",
    "data.mask_replace_prob=0.95": "more than 1",
    "data.weights=1": "1 data.weights for 0 corpora",
    "data.mlm_probability=1.5": "data.mlm_probability must be between 0 and 1",
    "data.corpora=a\ud800": "config key data.corpora holds a lone surrogate",
    "data.dupe_factor=0": "data.dupe_factor must be between 1 and 10,000",
}


@pytest.mark.parametrize("override", WRONG)
def test_wrong_overrides_are_one_clear_line(override):
    with pytest.raises(BertJaxError) as error:
        parse_config(run_config_file(f"{PRETRAIN}:tiny"), [override], Settings, strict=False)
    assert WRONG[override] in str(error.value) and "\n" not in str(error.value)


def test_a_section_is_given_as_a_dict():
    with pytest.raises(BertJaxError, match="data is a section, not 'train.csv'.*such as {\"corpora\": ...}"):
        build_config(Settings, {"data": "train.csv"})


def test_wrong_files_and_names(tmp_path):
    for spec, complaint in (
        (f"{PRETRAIN}:bsae", 'no size "bsae"; did you mean "base"?'),
        (f"{PRETRAIN}:base,robert", 'did you mean "roberta"?'),
        ("nowhere.py:base", "no config file nowhere.py"),
        (str(ROOT / "README.md"), "is not a Python file; give FILE.py or FILE.py:NAME"),
    ):
        with pytest.raises(BertJaxError, match=complaint.replace("?", r"\?")):
            parse_config(run_config_file(spec), [], Settings, strict=False)
    (tmp_path / "c.py").write_text("def get_config():\n    return {'data': {'unread': 1}}\n")
    with pytest.raises(BertJaxError, match="data.unread"):
        parse_config(run_config_file(str(tmp_path / "c.py")), [], Settings)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("import json\n\n\ndef get_config():\n    return json.loads('{')\n", ":5: JSONDecodeError"),
        ("\nimport bert_jax.nowhere\n", ":2: ModuleNotFoundError"),
        ("def get_config():\n    return }\n", ":2: SyntaxError"),
        ("x = 1\n", ": AttributeError"),
    ],
)
def test_the_line_of_an_error_is_that_of_the_config_file(text, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(BertJaxError, match=f"^own.py{where}"):
        parse_config(run_config_file("own.py"), [], Settings)


RECIPES = ("", ",laptop", ",roberta", ",lamb")
VARIANTS = [f"pretrain.py:{size}{recipe}" for size in BERT_SIZES for recipe in RECIPES]
VARIANTS += ["classify.py", "tag.py", "answer.py", *(f"classify.py:{task}" for task in glue.GLUE_TASKS)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_every_config_file_is_read(variant):
    needed = [] if variant.startswith("pretrain") else ["init=model"]
    needed += ["data.train=train.csv"] if ":" not in variant else []
    module, config = load_task(str(ROOT / "configs" / variant), needed)
    assert isinstance(config, module.Config)


@pytest.mark.parametrize(("recipe", "epochs"), [("classify", 3), ("answer", 2), ("distil", 5), ("embed", 1)])
def test_small_data_get_60_steps_unless_epochs_are_given(recipe, epochs):
    def steps(examples, *overrides):
        _, config = load_task(
            recipe, ["init=model", "data.train=t.csv", *teacher, "data.batch_size=32", *overrides]
        )
        return config.num_steps(examples)

    teacher = ["teacher=model"] if recipe == "distil" else []
    assert steps(56) == 60
    assert steps(3200) == 100 * epochs
    assert steps(56, "epochs=2") == 4


def test_a_task_of_glue_brings_its_splits_its_kind_and_its_metric():
    def read(name):
        _, config = load_task(str(ROOT / f"configs/classify.py:{name}"), ["init=model"])
        return config.data.train, config.data.validation, config.problem_type, config.checkpoints.best_metric

    assert read("mrpc") == (
        "tfds:glue/mrpc:train",
        "tfds:glue/mrpc:validation",
        "single_label_classification",
        "f1",
    )
    assert read("mnli")[1:] == (
        "tfds:glue/mnli:validation_matched",
        "single_label_classification",
        "accuracy",
    )
    assert read("cola")[3] == "matthews" and read("stsb")[2:] == ("regression", "pearson")


def test_help_loads_no_tensorflow():
    code = "import sys\nfrom bert_jax.command import main\nfor verb in main.VERBS: main.make_parser(verb)\n"
    code += "assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@cache
def looked_at() -> set[str]:
    """The attributes that the package reads, outside of the checks of configs."""
    names = set(AXES)  # the axes of a mesh are read by their names
    for path in (ROOT / "bert_jax").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        own = {
            id(each) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__post_init__"
            for each in ast.walk(node)
        }  # fmt: skip
        names |= {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and id(node) not in own
        }
    return names


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS.names())
def test_every_key_is_read_by_something(task):
    """A key that a config takes and no line of the package looks at would do nothing, in silence."""
    assert {key.split(".")[-1] for key in keys(TASKS[task].Config)} <= looked_at()


def keys(reader, prefix: str = "") -> set[str]:
    hints = typing.get_type_hints(reader)
    found = set()
    for field in dataclasses.fields(reader):
        kind, name = hints[field.name], prefix + field.name
        found |= keys(kind, name + ".") if dataclasses.is_dataclass(kind) else {name}
    return found


@pytest.mark.slow
def test_albert_learns_the_order_of_sentences_from_rows_that_have_one():
    _, config = load_task(f"{PRETRAIN}:albert-base", [])
    task = PretrainTask.from_config(config, ModelDirectories())
    assert (config.data.mask_unit, config.data.max_span_length) == ("span", 3)
    assert architecture(task.layout) == "ForPreTraining" and task.layout.pooler
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [9.0, 0.0]], np.float32)
    batch = {"labels": np.array([0, 0, 1]), "label_weights": np.array([1.0, 1.0, 0.0])}
    batch |= {"targets": np.zeros((3, 2), int), "target_weights": np.ones((3, 2))}
    outputs = {"mlm": np.zeros((3, 2, 7), np.float32), "sop": logits}
    expected = np.log1p(np.exp([-2.0, 1.0])).mean()
    assert float(task.losses(outputs, batch)["sop_loss"].mean) == pytest.approx(expected, rel=1e-6)
    assert float(task.scores(outputs, batch)["sop_accuracy"].mean) == 0.5
    _, config = load_task(f"{PRETRAIN}:base", ["data.sentence_objective=sentence_order"])
    assert PretrainTask.from_config(config, ModelDirectories()).layout.heads == ("mlm", "nsp")


def test_modernbert_goes_on_with_longer_rows_and_not_back_to_shorter_ones():
    first, longer = (load_task(f"{PRETRAIN}:modernbert-base{name}", [])[1] for name in ("", ",long"))
    assert (first.data.lengths, longer.data.lengths) == ((1024,), (8192,))
    assert learning_rate_factor(first.optimizer, first.steps, first.steps - 1) == 1
    shares = [
        float(learning_rate_factor(longer.optimizer, longer.steps, round(part * longer.steps)))
        for part in (0.8, 11 / 12)
    ]
    assert shares == pytest.approx([1, 0.5], abs=1e-3)
    check_sizes("first", first.model, longer.model)
    with pytest.raises(BertJaxError, match="--config.model.rotary.theta=160000"):
        check_sizes("longer", longer.model, first.model)
    with pytest.raises(BertJaxError, match="write modernbert-base,long"):
        load_task(f"{PRETRAIN}:base,long", [])
