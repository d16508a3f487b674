"""DeBERTa's enhanced mask decoder, which transformers lacks, beside torch; and the file of v3."""

import json
from functools import partial

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.inference.computations import HeadLogits
from bert_jax.report import model_info
from tests.support.families import DEBERTA_CONFIGS, DEBERTA_V2_CONFIGS
from tests.support.optional_modules import torch, transformers
from tests.support.parity import batch_for_heads
from tests.support.transformers_models import (
    assert_close,
    assert_gradients_close,
    save_transformers_model,
    transformers_inputs,
)

V3 = DEBERTA_V2_CONFIGS["v3"]


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
        pytest.param("DebertaV2ForMaskedLM", DEBERTA_V2_CONFIGS["convolution"], marks=pytest.mark.long),
        pytest.param(
            "DebertaForMaskedLM", DEBERTA_CONFIGS["plain"] | {"legacy": False}, marks=pytest.mark.long
        ),
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

    (_, logits), gradients = jax.device_get(jax.jit(jax.value_and_grad(loss, has_aux=True))(model.params))
    table = torch.from_numpy(places).requires_grad_()
    expected = decoded_by_torch(theirs, table, batch)
    assert_close(logits, expected, batch["attention_mask"])
    (expected * torch.from_numpy(target)).sum().backward()
    ours = to_hf_tensors(model.layout, gradients)
    of_places = ours.pop("deberta.embeddings.position_embeddings.weight")
    np.testing.assert_allclose(of_places, table.grad, atol=1e-4 * float(table.grad.abs().max()))
    assert_gradients_close(ours, theirs)
    unrolled = model.engine.start(HeadLogits("mlm", 0), read)
    assert_close(unrolled, expected, batch["attention_mask"])

    model.save(tmp_path / "ours")
    again = bert_jax.load(tmp_path / "ours", tokenizer=False)
    np.testing.assert_array_equal(again.params["encoder"]["embeddings"]["positions"], places)
    opened = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    plain = {name: array for name, array in transformers_inputs(batch).items() if name != "token_type_ids"}
    assert_close(opened(**plain).logits.detach().numpy(), theirs(**plain).logits)
    assert bert_jax.load(tmp_path / "ours", head="tag", labels=["O"], tokenizer=False).config == model.config


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
    left = model_info.collect_model_facts(tmp_path)["unread"]
    assert left == ["deberta.embeddings.position_ids", "mask_predictions.dense.weight"]
    # Without the masked LM, what is left of it is no one's.
    for name in [name for name in halves if name.startswith("lm_predictions.lm_head.dense")]:
        del halves[name]
    save_file(halves, tmp_path / "model.safetensors")
    assert bert_jax.load(tmp_path, tokenizer=False).layout.heads == ()
