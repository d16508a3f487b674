"""A family is one file: here two that are only in the tests."""

import json

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import load_file

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import families
from bert_jax.hub import model_directory as hub
from bert_jax.hub.families import FAMILIES, family_for
from bert_jax.hub.layout import Layout
from bert_jax.models.encoder_config import EncoderConfig
from tests.support.project import ROOT

CONFIG = EncoderConfig(
    vocab_size=12, hidden_size=16, num_hidden_layers=4, num_attention_heads=4, intermediate_size=24,
    max_position_embeddings=20,
)  # fmt: skip
# As an empty config.json of the family describes it.
OTHER = CONFIG.replace(
    num_hidden_layers=3, type_vocab_size=1, layer_norm_eps=1e-7, hidden_dropout_prob=0.0, head_dropout=0.2,
    hidden_act="relu",
)  # fmt: skip


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    folder = str(ROOT / "tests/examples/families")
    monkeypatch.setattr(families, "__path__", [*families.__path__, folder])


def write(path, layout):
    random = np.random.RandomState(0)
    flat = {name: random.standard_normal(shape).astype(np.float32) for name, shape in layout.shapes().items()}
    params = unflatten_dict(flat, sep="/")
    hub.save_model(path, layout, params)
    return params


def assert_opens_the_same(path, layout, params):
    model = bert_jax.load(path, tokenizer=False)
    assert model.layout.family == layout.family and model.config == layout.config
    assert model.layout.heads == layout.heads and model.layout.pooler == layout.pooler
    assert flatten_dict(model.params).keys() == flatten_dict(params).keys()
    jax.tree.map(np.testing.assert_array_equal, model.params, params)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("heads", [(), ("classify",)])
def test_a_family_of_other_names_and_defaults(tmp_path, heads):
    labels = ("no", "yes") if heads else ()
    layout = Layout(OTHER, FAMILIES["other-words"], heads, labels)
    params = write(tmp_path, layout)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert "base." * bool(heads) + "stack.2.q_lin.weight" in names
    assert ("pre_classifier.weight" in names) == (heads == ("classify",))
    assert_opens_the_same(tmp_path, layout, params)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["dim"] == 16 and config["activation"] == "relu" and "hidden_size" not in config
    kept = {key: config[key] for key in ("model_type", "architectures", "id2label") if key in config}
    (tmp_path / "config.json").write_text(json.dumps(kept))
    assert_opens_the_same(tmp_path, layout, params)  # absent keys have the family's defaults
    (tmp_path / "config.json").write_text(json.dumps(kept | {"rotary": True}))
    with pytest.raises(BertJaxError, match="rotary = True"):
        bert_jax.load(tmp_path, tokenizer=False)


@pytest.mark.slow
def test_a_new_head_of_a_family_of_other_names(tmp_path):
    write(tmp_path / "base", Layout(OTHER, FAMILIES["other-words"], ("mlm",)))
    model = bert_jax.load(tmp_path / "base", head="classify", labels=["a", "b"], tokenizer=False)
    model.save(tmp_path / "new")
    assert_opens_the_same(tmp_path / "new", model.layout, jax.device_get(model.params))
    with pytest.raises(BertJaxError, match='"nsp"'):
        bert_jax.load(tmp_path / "base", head="nsp", tokenizer=False)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [2, 0])
def test_shared_layers_are_saved_and_opened(tmp_path, groups):
    config = CONFIG.replace(layer_groups=groups)
    layout = Layout(config, family_for(config) if groups else FAMILIES["shared-bert"], heads=("mlm", "nsp"))
    assert layout.family.model_type == "shared-bert"
    params = write(tmp_path, layout)
    published = json.loads((tmp_path / "config.json").read_text())
    assert published["num_hidden_groups"] == (groups or 4)
    names = {name.split(".")[3] for name in load_file(tmp_path / "model.safetensors") if "encoder" in name}
    assert names == {str(i) for i in range(groups or 4)}
    assert_opens_the_same(tmp_path, layout, params)


def test_what_a_family_cannot_hold_it_refuses():
    with pytest.raises(BertJaxError, match="layer_groups = 2"):
        Layout(CONFIG.replace(layer_groups=2))
    with pytest.raises(BertJaxError, match='"nsp"'):
        Layout(CONFIG, FAMILIES["roberta"], ("mlm", "nsp"))
    assert family_for(CONFIG).model_type == "bert"


def test_a_config_cannot_name_a_python_module(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "json.tool"}')
    with pytest.raises(BertJaxError, match='"json.tool"'):
        bert_jax.load(tmp_path)
