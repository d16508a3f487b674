"""NomicBERT under the names of the published files, which are older than those of the reference."""

import json

import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file, save_file

from bert_jax.hub.published_form import to_hf_config
from bert_jax.inference.load import load
from bert_jax.models.encoder_config import RotaryConfig
from tests.support.model_outputs import compute_outputs
from tests.support.seeded_arrays import seeded_tensors

# As nomic-embed-text and nomic-bert-2048 are published, in small.
PUBLISHED = {
    "activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0,
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}, "causal": False,
    "embd_pdrop": 0.0, "layer_norm_epsilon": 1e-12, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
    "model_type": "nomic_bert", "n_embd": 24, "n_head": 3, "n_inner": 40, "n_layer": 2, "n_positions": 8192,
    "pad_vocab_size_multiple": 64, "parallel_block": False, "prenorm": False, "qkv_proj_bias": False,
    "resid_pdrop": 0.0, "rotary_emb_base": 500, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None, "rotary_scaling_factor": None, "scale_attn_weights": True, "type_vocab_size": 2,
    "use_rms_norm": False, "vocab_size": 64,
}  # fmt: skip


def publish(path, mlm: bool, **changes):
    """A directory under the names of the published files; the tensors it holds."""
    path.mkdir()
    D, F = 24, 40
    shapes = {"embeddings.word_embeddings.weight": (64, D), "embeddings.token_type_embeddings.weight": (2, D)}
    shapes |= {"emb_ln.weight": (D,), "emb_ln.bias": (D,)}
    for i in range(2):
        layer = f"encoder.layers.{i}."
        shapes |= {f"{layer}attn.Wqkv.weight": (3 * D, D), f"{layer}attn.out_proj.weight": (D, D)}
        shapes |= {f"{layer}norm{n}.{kind}": (D,) for n in (1, 2) for kind in ("weight", "bias")}
        shapes |= {f"{layer}mlp.{name}.weight": (F, D) for name in ("fc11", "fc12")}
        shapes |= {f"{layer}mlp.fc2.weight": (D, F)}
    config = PUBLISHED | changes
    if mlm:
        transform = "cls.predictions.transform."
        shapes = {f"bert.{name}": shape for name, shape in shapes.items()}
        shapes |= {f"{transform}dense.weight": (D, D), f"{transform}layer_norm.weight": (D,)}
        shapes |= {f"{transform}layer_norm.bias": (D,)}
        config |= {"architectures": ["NomicBertForPreTraining"]}
    tensors = seeded_tensors(shapes, 0)
    if mlm:
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].copy()
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config))
    return tensors


@pytest.mark.slow
@pytest.mark.parametrize("mlm", [False, True])
def test_published_files_open_and_are_saved_under_todays_names(tmp_path, mlm):
    tensors = publish(tmp_path / "old", mlm)
    model = load(tmp_path / "old", tokenizer=False)
    assert model.layout.heads == (("mlm",) if mlm else ())
    assert model.config.rotary == RotaryConfig(500) and model.config.max_position_embeddings == 8192
    qkv = tensors["bert." * mlm + "encoder.layers.1.attn.Wqkv.weight"].reshape(3, 3, 8, 24)
    ours = model.params["encoder"]["layers"]["attention"]["qkv"]["kernel"][1]
    np.testing.assert_array_equal(ours, qkv.transpose(3, 0, 1, 2))
    if mlm:
        assert not model.params["mlm"]["bias"].any(), "the published head has no biases"
    model.save(tmp_path / "new")
    config = json.loads((tmp_path / "new/config.json").read_text())
    assert not {"n_embd", "auto_map", "rotary_emb_base"} & set(config)
    assert config["architectures"] == ["NomicBertForMaskedLM" if mlm else "NomicBertModel"]
    names = set(load_file(tmp_path / "new/model.safetensors"))
    assert "nomic_bert." * mlm + "layers.1.self_attn.k_proj.weight" in names
    again = load(tmp_path / "new", tokenizer=False)
    assert again.config == model.config
    before, after = (flatten_dict(m.params, sep="/") for m in (model, again))
    assert before.keys() == after.keys() and all((before[k] == after[k]).all() for k in before)


@pytest.mark.slow
def test_published_files_compute_what_transformers_computes_of_them(tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    publish(tmp_path / "old", mlm=False)
    model = load(tmp_path / "old", tokenizer=False)
    # Its config class reads none of the old keys.
    config = transformers.NomicBertConfig(**to_hf_config(model.layout))
    theirs = transformers.NomicBertModel.from_pretrained(tmp_path / "old", config=config).eval()
    tokens = np.random.RandomState(0).randint(1, 64, (2, 9))
    batch = {"input_ids": tokens, "token_type_ids": 0 * tokens, "attention_mask": 0 * tokens + 1}
    with torch.no_grad():
        expected = theirs(torch.from_numpy(tokens)).last_hidden_state
    ours = compute_outputs(model, batch)["hidden"]
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_a_scaled_rotation_is_read_up_to_the_positions_it_was_trained_for(tmp_path):
    publish(tmp_path / "old", False, rotary_scaling_factor=2, max_trained_positions=2048)
    assert load(tmp_path / "old", tokenizer=False).config.max_position_embeddings == 2048
