"""JinaBERT and MosaicBERT, which transformers lacks, beside a program of their published files, in numpy."""

import json
import math

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.report import model_info
from tests.support.families import FAMILY_CONFIGS, add_tensors, family_layout, write_released
from tests.support.model_outputs import compute_outputs

erf = np.vectorize(math.erf)
ACTIVATIONS = {"gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2, "relu": lambda x: np.maximum(x, 0)}
SIZES = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20, "vocab_size": 61,
    "max_position_embeddings": 64, "type_vocab_size": 2,
}  # fmt: skip
SLOPES = (1 / 16, 1 / 256, 1 / 4)  # of three heads
JINA = SIZES | {"position_embedding_type": "alibi"}
# Family, config, and the activations of the feed-forward and of the masked-LM head.
CASES = {
    "Jina": ("jina_bert", JINA | {"feed_forward_type": "geglu"}, "gelu", "gelu"),
    "Jina, reglu": ("jina_bert", JINA | {"feed_forward_type": "reglu"}, "relu", "gelu"),
    "Jina, original": ("jina_bert", JINA | {"hidden_act": "relu"}, "relu", "relu"),
    "Mosaic": ("mosaic_bert", SIZES | {"alibi_starting_size": 16, "hidden_act": "relu"}, "gelu", "relu"),
}


class PublishedProgram:
    """The tensors of a file, and what is computed of them for one text, in float64."""

    def __init__(self, path, activation: str, mlm_activation: str):
        self.tensors = {
            name: np.float64(value) for name, value in load_file(path / "model.safetensors").items()
        }
        self.activation, self.mlm_activation = ACTIVATIONS[activation], ACTIVATIONS[mlm_activation]

    def linear(self, name, x):
        product = x @ self.tensors[f"{name}.weight"].T
        return product + self.tensors[f"{name}.bias"] if f"{name}.bias" in self.tensors else product

    def norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return unit * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def logits(self, ids, types):
        place = "bert.embeddings."
        states = self.tensors[f"{place}word_embeddings.weight"][ids]
        states = states + self.tensors[f"{place}token_type_embeddings.weight"][types]
        states = self.norm(f"{place}LayerNorm", states)
        for i in range(2):
            states = self.layer(f"bert.encoder.layer.{i}.", states)
        head = "cls.predictions."
        states = self.norm(
            f"{head}transform.LayerNorm", self.mlm_activation(self.linear(f"{head}transform.dense", states))
        )
        # MosaicBERT's bias is that of the decoder.
        bias = self.tensors.get(f"{head}bias", self.tensors.get(f"{head}decoder.bias"))
        return states @ self.tensors[f"{place}word_embeddings.weight"].T + bias

    def layer(self, place, x):
        L, D = x.shape
        attention = f"{place}attention.self."
        if f"{attention}Wqkv.weight" in self.tensors:
            qkv = self.linear(f"{attention}Wqkv", x).reshape(L, 3, 3, D // 3)
            query, key, value = qkv.transpose(1, 2, 0, 3)
        else:
            query, key, value = (
                self.linear(attention + name, x).reshape(L, 3, D // 3).transpose(1, 0, 2)
                for name in ("query", "key", "value")
            )
        distance = np.abs(np.arange(L)[:, None] - np.arange(L))
        scores = (
            query @ key.transpose(0, 2, 1) / math.sqrt(D // 3) - np.array(SLOPES)[:, None, None] * distance
        )
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ value
        attended = self.linear(f"{place}attention.output.dense", mixed.transpose(1, 0, 2).reshape(L, D))
        x = self.norm(f"{place}attention.output.LayerNorm", x + attended)
        if f"{place}mlp.gated_layers.weight" in self.tensors:
            activated, gate = np.split(self.linear(f"{place}mlp.gated_layers", x), 2, axis=-1)
            fed = self.linear(f"{place}mlp.wo", self.activation(activated) * gate)
            return self.norm(f"{place}mlp.layernorm", x + fed)
        fed = self.linear(
            f"{place}output.dense", self.activation(self.linear(f"{place}intermediate.dense", x))
        )
        return self.norm(f"{place}output.LayerNorm", x + fed)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_published_files_compute_what_their_program_computes(case, tmp_path):
    family, published, activation, mlm_activation = CASES[case]
    write_released(tmp_path, family, published, ("mlm",))
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.layout.family.model_type == family and model.layout.heads == ("mlm",)
    random, lengths = np.random.RandomState(1), (19, 7)
    batch = {
        "input_ids": random.randint(5, 61, (2, 19)), "token_type_ids": random.randint(0, 2, (2, 19)),
        "attention_mask": (np.arange(19) < np.array(lengths)[:, None]).astype(np.int32),
    }  # fmt: skip
    logits = jax.jit(model.module.apply)({"params": model.params}, batch)["mlm"]
    program = PublishedProgram(tmp_path, activation, mlm_activation)
    for row, length in enumerate(lengths):
        text = (batch[name][row, :length] for name in ("input_ids", "token_type_ids"))
        np.testing.assert_allclose(logits[row, :length], program.logits(*text), atol=1e-5)
    model.save(tmp_path / "again")
    written, again = (load_file(path / "model.safetensors") for path in (tmp_path, tmp_path / "again"))
    assert written.keys() == again.keys() and all((written[name] == again[name]).all() for name in written)
    saved = json.loads((tmp_path / "again/config.json").read_text())
    assert saved["model_type"] == "bert" and {key: saved[key] for key in published} == published
    assert bert_jax.load(tmp_path / "again", tokenizer=False).config == model.config


@pytest.mark.slow
def test_code_that_opens_a_model_is_named_only_where_it_still_is(tmp_path):
    code = {
        "AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel",
        "AutoConfig": "here.Config",
    }
    write_released(
        tmp_path, "jina_bert", FAMILY_CONFIGS["jina_bert"] | {"vocab_size": 61, "auto_map": code}, ("mlm",)
    )
    bert_jax.load(tmp_path, tokenizer=False).save(tmp_path / "again")
    saved = json.loads((tmp_path / "again/config.json").read_text())
    assert saved["auto_map"] == {"AutoModel": code["AutoModel"]}
    assert "transformers has no jina_bert" in " ".join(
        model_info.collect_model_facts(tmp_path / "again")["odd"]
    )


def test_normalised_queries_and_keys_are_refused(tmp_path):
    published = FAMILY_CONFIGS["jina_bert"] | {"vocab_size": 61}
    write_released(tmp_path, "jina_bert", published, ("mlm",))
    add_tensors(
        tmp_path, {"bert.encoder.layer.0.attention.self.layer_norm_q.weight": np.ones(32, np.float32)}
    )
    with pytest.raises(BertJaxError, match="jina-bert-v2-qk-post-norm"):
        bert_jax.load(tmp_path, tokenizer=False)


def test_a_gated_feed_forward_that_no_file_can_name_is_refused():
    layout = family_layout("jina_bert", FAMILY_CONFIGS["jina_bert"] | {"vocab_size": 61})
    with pytest.raises(BertJaxError, match="no gated feed-forward with silu"):
        layout.family.write_config(layout.config.replace(hidden_act="silu"), {})


@pytest.mark.slow
def test_transformers_opens_a_model_with_sinusoidal_positions(tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    write_released(
        tmp_path, "sinusoidal_bert", FAMILY_CONFIGS["sinusoidal_bert"] | {"vocab_size": 61}, ("mlm",)
    )
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert "positions" not in model.params["encoder"]["embeddings"]
    theirs, report = transformers.BertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    ids = np.random.RandomState(0).randint(5, 61, (2, 40))
    batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1}
    with torch.no_grad():
        expected = theirs.eval()(torch.from_numpy(ids)).logits
    np.testing.assert_allclose(compute_outputs(model, batch)["mlm"], expected, atol=1e-5)
