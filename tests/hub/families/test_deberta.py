"""DeBERTa-v2 and v3, beside those of `transformers`; the enhanced mask decoder, which it lacks, beside torch."""

import json
from functools import partial

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import sized
from bert_jax.inference import programs
from bert_jax.report import model_info
from tests.support.cases import long_except
from tests.support.packing import assert_packed_equals_separate
from tests.support.parity import FINE_TUNED_HEADS, assert_equals_transformers, batch_for_heads
from tests.support.transformers_models import (
    assert_close,
    assert_gradients_close,
    save_transformers_model,
    transformers_inputs,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

V3 = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 61,
    "max_position_embeddings": 40, "position_biased_input": False, "relative_attention": True, "position_buckets": 8,
    "max_relative_positions": -1, "share_att_key": True, "norm_rel_ebd": "layer_norm", "pos_att_type": "p2c|c2p",
    "type_vocab_size": 0,
}  # fmt: skip
XLARGE = V3 | {"conv_kernel_size": 3, "conv_act": "gelu", "legacy": False}
# Projections of their own, every distance by itself and farther than any, segments, positions in the embeddings.
UNSHARED = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 1, "intermediate_size": 20, "vocab_size": 47,
    "max_position_embeddings": 30, "position_biased_input": True, "relative_attention": True,
    "max_relative_positions": 12, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 3, "conv_kernel_size": 5,
}  # fmt: skip
V1 = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 61,
    "max_position_embeddings": 40, "position_biased_input": False, "relative_attention": True,
    "max_relative_positions": -1, "pos_att_type": "c2p|p2c", "type_vocab_size": 0,
}  # fmt: skip
# Rows longer than the farthest distance.
V1_FAR = V1 | {
    "max_relative_positions": 9,
    "position_biased_input": True,
    "type_vocab_size": 2,
    "hidden_act": "relu",
}
LEGACY = {
    "lm_predictions.lm_head.bias": "cls.predictions.bias",
    "lm_predictions.lm_head.": "cls.predictions.transform.",
}
CONFIGS = {
    "v3": ("DebertaV2", V3),
    "convolution": ("DebertaV2", XLARGE),
    "projections of their own": ("DebertaV2", UNSHARED),
    "content to position alone": ("DebertaV2", UNSHARED | {"pos_att_type": "c2p", "hidden_act": "relu"}),
    "position to content alone": ("DebertaV2", V3 | {"pos_att_type": "p2c"}),
    "v1": ("Deberta", V1),
    "v1, rows longer than the farthest distance": ("Deberta", V1_FAR),
    "v1, position to content alone": ("Deberta", V1 | {"pos_att_type": "p2c"}),
}
SHOWN = ("convolution", "v1, rows longer than the farthest distance")


@pytest.mark.slow
@pytest.mark.parametrize("name", long_except(CONFIGS, SHOWN))
def test_equals_transformers(name, tmp_path):
    prefix, config = CONFIGS[name]
    old = LEGACY if config.get("legacy", True) else None
    assert_equals_transformers(
        prefix, {"Model": (), "ForMaskedLM": ("mlm",), **FINE_TUNED_HEADS}, config, tmp_path, old=old
    )


def layer_of_v1(layer, hidden, mask, query_states, relative_pos, rel_embeddings):
    """What the reference's first DeBERTa raises an error for: a layer asked by other states."""
    own, (B, L, D) = layer.attention.self, hidden.shape
    H = own.num_attention_heads
    weight = own.in_proj.weight.view(H, 3, D // H, D)
    scale = (3 * D / H) ** -0.5

    def heads(states):
        return states.view(*states.shape[:-1], H, D // H).transpose(-2, -3)

    q, k, v = (
        torch.einsum("bld,hkd->bhlk", s, weight[:, n]) for n, s in enumerate((query_states, hidden, hidden))
    )
    q = (q + heads(own.q_bias[None])) * scale
    rows = relative_pos[0].clamp(-39, 39) + 40
    keys, queries = heads(own.pos_proj(rel_embeddings)), heads(own.pos_q_proj(rel_embeddings)) * scale
    scores = q @ k.transpose(-1, -2)
    scores = scores + torch.einsum("bhik,hijk->bhij", q, keys[:, rows])
    scores = scores + torch.einsum("bhjk,hijk->bhij", k, queries[:, rows])
    weights = scores.masked_fill(~mask.bool(), -1e9).softmax(-1)
    mixed = (weights @ (v + heads(own.v_bias[None]))).transpose(1, 2).reshape(B, L, D)
    attended = layer.attention.output(mixed, query_states)
    return layer.output(layer.intermediate(attended), attended), None


def decoded_by_torch(model, places, batch):
    """Logits of the enhanced mask decoder, of the reference's own layers."""
    read = transformers_inputs(batch)
    encoder, words = model.deberta.encoder, model.deberta.embeddings.word_embeddings.weight
    is_v1 = model.config.model_type == "deberta"
    layer = partial(layer_of_v1, encoder.layer[-1]) if is_v1 else encoder.layer[-1]
    states = model.deberta(read["input_ids"], read["attention_mask"], output_hidden_states=True).hidden_states
    mask = encoder.get_attention_mask(read["attention_mask"])
    distances, table = encoder.get_rel_pos(states[0]), encoder.get_rel_embedding()
    asking = states[-2] + places[: states[0].shape[1]]
    for _ in range(2):
        asking, _ = layer(states[-2], mask, query_states=asking, relative_pos=distances, rel_embeddings=table)
    head = model.lm_predictions.lm_head
    made = head.LayerNorm(torch.nn.functional.gelu(head.dense(asking)))
    return made @ words.T + head.bias


def add_places(path, places):
    """As the original's files have it, beside a head whose parts transformers does not know."""
    tensors = load_file(path / "model.safetensors")
    tensors["deberta.embeddings.position_embeddings.weight"] = places
    tensors["mask_predictions.dense.weight"] = np.zeros((24, 24), np.float32)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("DebertaV2ForMaskedLM", V3 | {"legacy": False}),
        pytest.param("DebertaV2ForMaskedLM", XLARGE, marks=pytest.mark.long),
        pytest.param("DebertaForMaskedLM", V1 | {"legacy": False}, marks=pytest.mark.long),
    ],
)
def test_the_enhanced_mask_decoder_equals_torch_and_its_positions_survive(kind, config, tmp_path):
    theirs = save_transformers_model(kind, tmp_path / "theirs", seed=3, **config)
    places = np.random.RandomState(0).standard_normal((40, 24)).astype(np.float32)
    add_places(tmp_path / "theirs", places)
    model = bert_jax.load(tmp_path / "theirs", tokenizer=False)
    assert model.config.positions == "decoder"
    batch = batch_for_heads(("mlm",), config, model.config)
    read = {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    target = (
        np.random.RandomState(1).standard_normal((3, 19, 61)).astype(np.float32)
        * batch["attention_mask"][..., None]
    )

    def loss(params):
        logits = model.module.apply({"params": params}, read)["mlm"]
        return (logits * target).sum(), logits

    (_, logits), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(model.params)
    table = torch.from_numpy(places).requires_grad_()
    expected = decoded_by_torch(theirs, table, batch)
    assert_close(logits, expected, batch["attention_mask"])
    (expected * torch.from_numpy(target)).sum().backward()
    ours = model.layout.published_tensors(gradients)
    of_places = ours.pop("deberta.embeddings.position_embeddings.weight")
    np.testing.assert_allclose(of_places, table.grad, atol=1e-4 * float(table.grad.abs().max()))
    assert_gradients_close(ours, theirs)
    unrolled = programs.head_logits(model.config, "mlm", 0)(model.rounded, read)
    assert_close(unrolled, expected, batch["attention_mask"])

    model.save(tmp_path / "ours")
    again = bert_jax.load(tmp_path / "ours", tokenizer=False)
    np.testing.assert_array_equal(again.params["encoder"]["embeddings"]["positions"], places)
    opened = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    plain = {name: array for name, array in transformers_inputs(batch).items() if name != "token_type_ids"}
    assert_close(opened(**plain).logits.detach().numpy(), theirs(**plain).logits)
    assert bert_jax.load(tmp_path / "ours", head="tag", labels=["O"], tokenizer=False).config == model.config


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("DebertaV2ForMaskedLM", XLARGE),
        pytest.param("DebertaV2ForMaskedLM", UNSHARED, marks=pytest.mark.long),
        pytest.param("DebertaForMaskedLM", V1, marks=pytest.mark.long),
    ],
)
def test_packed_texts_equal_separate_ones(kind, config, tmp_path):
    save_transformers_model(kind, tmp_path, **config)
    if not config["position_biased_input"]:
        add_places(tmp_path, np.random.RandomState(0).standard_normal((40, 24)).astype(np.float32))
    assert_packed_equals_separate(bert_jax.load(tmp_path, tokenizer=False).layout)


def saved(path, **changes):
    transformers.DebertaV2ForMaskedLM(transformers.DebertaV2Config(**V3 | changes)).save_pretrained(path)


def edit_config(path, **changes):
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(config))


@pytest.mark.slow
def test_a_published_file_opens_and_says_what_it_leaves_aside(tmp_path):
    """v3's: no architecture, half-precision weights, the parts of pre-training, positions that embeddings ignore."""
    saved(tmp_path, legacy=False)
    add_places(tmp_path, np.zeros((40, 24), np.float32))
    tensors = load_file(tmp_path / "model.safetensors")
    halves = {name: array.astype(np.float16) for name, array in tensors.items()}
    halves["deberta.embeddings.position_ids"] = np.arange(40)[None]
    save_file(halves, tmp_path / "model.safetensors")
    edit_config(
        tmp_path, architectures=None, pad_token_id=0, pooler_dropout=0, pooler_hidden_act="gelu", legacy=None
    )
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.layout.heads == ("mlm",) and model.config.positions == "decoder"
    left = model_info.collect(tmp_path)["unread"]
    assert left == ["deberta.embeddings.position_ids", "mask_predictions.dense.weight"]
    # Without the masked LM, what is left of it is no one's.
    for name in [name for name in halves if name.startswith("lm_predictions.lm_head.dense")]:
        del halves[name]
    save_file(halves, tmp_path / "model.safetensors")
    assert bert_jax.load(tmp_path, tokenizer=False).layout.heads == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_attention": False}, "relative_attention = False contradicts pos_att_type"),
        ({"relative_attention": None}, "relative_attention = None contradicts pos_att_type"),
        ({"pos_att_type": None}, "relative_attention = True contradicts pos_att_type"),
        ({"pos_att_type": "p2p"}, 'pos_att_type has "p2p"; did you mean "p2c"'),
        ({"position_buckets": 7}, "buckets must be an even number of at least 4, not 7"),
        ({"position_buckets": -8}, "position_buckets = -8 is not a size"),
        ({"position_buckets": 400}, "farthest must be a whole number of at least 202, not 40"),
        ({"position_buckets": 16}, r"rel_embeddings.weight is \[16, 24\] where the config asks for \[32, 24\]"),
        ({"conv_kernel_size": 2}, "convolution.width must be an odd number or 0, not 2"),
        ({"conv_groups": 3}, "conv_groups = 3 is not supported, only 1"),
        ({"conv_kernel_size": 3}, "missing: deberta.encoder.conv.conv.weight"),
        ({"embedding_size": 12}, "embedding_size = 12 is not supported, only hidden_size = 24"),
        ({"attention_head_size": 64}, "attention_head_size = 64 is not supported"),
        ({"pooler_dropout": 0.3}, "pooler_dropout = 0.3 is not supported, only 0"),
        ({"share_att_key": False}, "missing: deberta.encoder.layer.0.attention.self.pos_key_proj.weight"),
        ({"model_type": "deberta"}, "position_buckets = 8 is not supported, only -1"),
    ],
)  # fmt: skip
def test_hostile_configs_are_refused_in_one_line(changes, message, tmp_path):
    saved(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(BertJaxError, match=message) as error:
        bert_jax.load(tmp_path, tokenizer=False)
    assert "\n" not in str(error.value)


def test_published_sizes():
    family, config = sized("deberta-v3-xsmall")
    assert family == "deberta-v2" and (config.layers, config.hidden_size, config.heads) == (12, 384, 6)
    assert config.positions == "decoder" and config.relative.span == 256 and config.norm_epsilon == 1e-7
    assert not sized("deberta-base")[1].relative.key_bias and sized("deberta-base")[1].relative.span == 512
    assert sized("deberta-v2-xlarge")[1].convolution.width == 3
