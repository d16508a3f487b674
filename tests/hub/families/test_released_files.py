"""Directories as they are released: what opens of each, what is left unread, and that our copy is the same model."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import FAMILIES
from bert_jax.models.encoder_config import LocalAttentionConfig, RotaryConfig
from bert_jax.report import model_info
from tests.support.cases import long_except
from tests.support.families import FAMILY_CONFIGS, add_tensors, write_released
from tests.support.model_outputs import compute_outputs
from tests.support.small_models import trees_equal


def words(params):
    return params["encoder"]["embeddings"]["words"]


@dataclass(frozen=True)
class Release:
    """`keys` are those beside the sizes, None for one that is absent; `extra` tensors mean nothing."""

    family: str
    heads: tuple[str, ...]
    keys: dict
    extra: dict[str, Callable | np.ndarray] = field(default_factory=dict)  # functions: of the parameters
    pooler: bool = False
    facts: dict = field(default_factory=dict)  # fields of the encoder's config
    absent: str = ""  # the parameter of which the files lack a layer


BERT = {
    "hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 40, "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02, "max_position_embeddings": 64,
    "type_vocab_size": 2,
}  # fmt: skip
GOOGLE = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02,
    "layer_norm_eps": 1e-12, "pad_token_id": 0, "type_vocab_size": 2,
}  # fmt: skip
ELECTRA = GOOGLE | {
    "summary_activation": "gelu", "summary_last_dropout": 0.1, "summary_type": "first", "summary_use_proj": True,
}  # fmt: skip
MODERNBERT = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "classifier_activation": "gelu",
    "classifier_bias": False, "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 1,
    "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0, "eos_token_id": 2,
    "global_attn_every_n_layers": 2, "global_rope_theta": 1600.0, "gradient_checkpointing": False,
    "hidden_activation": "gelu", "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "layer_norm_eps": 1e-05,
    "local_attention": 8, "local_rope_theta": 100.0, "max_position_embeddings": 8192, "mlp_bias": False,
    "mlp_dropout": 0.0, "norm_bias": False, "norm_eps": 1e-05, "num_hidden_layers": 5, "pad_token_id": 3,
    "position_embedding_type": "absolute", "reference_compile": True, "repad_logits_with_grad": False,
    "sep_token_id": 2, "sparse_pred_ignore_index": -100, "sparse_prediction": False, "tie_word_embeddings": True,
}  # fmt: skip
DENSE = {"weight": np.ones((48, 24), np.float32), "bias": np.ones(48, np.float32)}
RELEASED = {
    "ALBERT": Release(
        "albert", ("mlm",),
        GOOGLE | {
            "architectures": ["AlbertForMaskedLM"], "bos_token_id": 2, "classifier_dropout_prob": 0.1,
            "down_scale_factor": 1, "eos_token_id": 3, "gap_size": 0, "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0, "inner_group_num": 1, "net_structure_type": 0, "num_hidden_layers": 4,
            "num_hidden_groups": 2, "num_memory_blocks": 0,
        },
        {
            "predictions.decoder.weight": words, "predictions.decoder.bias": lambda params: params["mlm"]["bias"],
            "albert.embeddings.position_ids": np.arange(64)[None],
        },
        pooler=True, facts={"groups": 2, "hidden_act": "gelu_tanh", "hidden_dropout_prob": 0},
    ),
    "DistilBERT": Release(
        "distilbert", ("mlm",),
        {
            "architectures": ["DistilBertForMaskedLM"], "activation": "gelu", "attention_dropout": 0.1, "dropout": 0.1,
            "initializer_range": 0.02, "pad_token_id": 0, "qa_dropout": 0.1, "seq_classif_dropout": 0.2,
            "sinusoidal_pos_embds": False, "tie_weights_": True, "output_past": True,
        },
        {"distilbert.embeddings.position_ids": np.arange(64)[None], "vocab_projector.weight": words},
    ),
    "ELECTRA's discriminator": Release(
        "electra", ("replaced",), ELECTRA | {"architectures": ["ElectraForPreTraining"]},
        {"electra.embeddings.position_ids": np.arange(64)[None]}, facts={"embedding_size": 16},
    ),
    "ELECTRA's generator": Release(
        "electra", ("mlm",), ELECTRA | {"architectures": ["ElectraForMaskedLM"]}, {"generator_lm_head.weight": words},
    ),
    "ModernBERT": Release(
        "modernbert", ("mlm",), MODERNBERT | {"architectures": ["ModernBertForMaskedLM"]}, {"decoder.weight": words},
        facts={
            "local_attention": LocalAttentionConfig(4, 2), "rotary": RotaryConfig(1600.0, 100.0),
            "max_position_embeddings": 8192,
        },
        absent="encoder/layers/attention_norm/scale",
    ),
    "mmBERT": Release(
        "modernbert", ("mlm",),
        MODERNBERT | {
            "architectures": ["ModernBertForMaskedLM"], "global_attn_every_n_layers": 3, "local_rope_theta": 1600.0,
            "bos_token_id": 2, "cls_token_id": 1, "eos_token_id": 1, "pad_token_id": 0, "mask_token_id": 4,
            "position_embedding_type": "sans_pos",
        },
        {"decoder.weight": words}, facts={"rotary": RotaryConfig(1600.0, 1600.0)},
        absent="encoder/layers/attention_norm/scale",
    ),
    # With the keys of the code that came with the files, before transformers had the family.
    "EuroBERT": Release(
        "eurobert", ("mlm",),
        {
            "architectures": ["EuroBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0,
            "auto_map": {"AutoModel": "modeling_eurobert.EuroBertModel"}, "bos_token_id": 3, "clf_pooling": "mean",
            "eos_token_id": 4, "head_dim": 8, "hidden_act": "silu", "hidden_dropout": 0.0, "initializer_range": 0.02,
            "mask_token_id": 5, "mlp_bias": False, "num_key_value_heads": 2, "pad_token_id": 4, "pretraining_tp": 1,
            "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 250000, "tie_word_embeddings": False,
            "use_cache": False,
        },
        facts={"rotary": RotaryConfig(250_000.0), "num_key_value_heads": 2, "layer_norm_eps": 1e-5},
    ),
    # jina-embeddings-v2: an encoder without prefix, and the architecture of what it was made from.
    "JinaBERT as an embedder": Release(
        "jina_bert", (),
        GOOGLE | {
            "architectures": ["JinaBertForMaskedLM"], "attention_probs_dropout_prob": 0.0, "emb_pooler": "mean",
            "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
            "attn_implementation": None, "feed_forward_type": "geglu", "position_embedding_type": "alibi",
        },
        pooler=True, facts={"positions": "alibi", "gated": True},
    ),
    "MosaicBERT": Release(
        "mosaic_bert", ("mlm",),
        GOOGLE | {
            "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.0, "alibi_starting_size": 512,
            "auto_map": {"AutoModelForMaskedLM": "bert_layers.BertForMaskedLM"}, "position_embedding_type": "absolute",
        },
        {"cls.predictions.decoder.weight": words}, facts={"positions": "alibi", "gated": True},
    ),
    "mBERT": Release(
        "bert", ("mlm", "nsp"),
        BERT | {
            "architectures": ["BertForMaskedLM"], "directionality": "bidi", "layer_norm_eps": 1e-12, "pad_token_id": 0,
            "num_attention_heads": 12, "pooler_fc_size": 24, "pooler_num_attention_heads": 12,
            "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
        },
        {"cls.predictions.decoder.weight": np.ones((61, 24), np.float32)}, pooler=True,
    ),
    "MiniLM": Release(
        "bert", ("mlm", "nsp"),
        BERT | {"architectures": ["BertModel"], "layer_norm_eps": 1e-12, "num_attention_heads": 12},
        {"bert.embeddings.position_ids": np.arange(64)[None]}, pooler=True,
    ),
    # Without model_type and architectures, and heads of an odd size.
    "TinyBERT": Release(
        "bert", ("mlm", "nsp"),
        BERT | {
            "model_type": None, "cell": {}, "emb_size": 24, "structure": [], "pre_trained": "",
            "num_attention_heads": 8,
        },
        {f"fit_denses.{i}.{name}": value for i in range(3) for name, value in DENSE.items()}, pooler=True,
    ),
    # all-mpnet-base-v2: an encoder without prefix, its pooler, and the architecture of what it was made from.
    "MPNet as an embedder": Release(
        "mpnet", (), {"architectures": ["MPNetForMaskedLM"]}, {"embeddings.position_ids": np.arange(66)[None]},
        pooler=True, facts={"max_position_embeddings": 64},
    ),
}  # fmt: skip


def write(path, release: Release) -> dict:
    """The parameters of the directory written."""
    sizes = FAMILY_CONFIGS.get(release.family, {}) | {"vocab_size": 61}
    config = {"model_type": FAMILIES[release.family].config_type} | sizes | release.keys
    given = {key: value for key, value in config.items() if value is not None}
    params = write_released(path, release.family, given, release.heads, pooler=release.pooler)
    (path / "config.json").write_text(json.dumps(given))
    add_tensors(
        path, {name: made(params) if callable(made) else made for name, made in release.extra.items()}
    )
    return params


@pytest.mark.slow
@pytest.mark.parametrize("name", RELEASED)
def test_a_released_directory_opens_and_is_the_same_model_saved_again(name, tmp_path):
    release = RELEASED[name]
    params = write(tmp_path, release)
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.layout.family.model_type == release.family
    assert model.layout.heads == release.heads and model.layout.pooler == release.pooler
    assert {field: getattr(model.config, field) for field in release.facts} == release.facts
    ours, written = (flatten_dict(tree, sep="/") for tree in (model.params, params))
    assert trees_equal(ours | {release.absent: 0}, written | {release.absent: 0})
    info = model_info.collect_model_facts(tmp_path)
    assert info["unread"] == sorted(release.extra)
    notes = [note for note in info["odd"] if "tokenizer" not in note]
    in_transformers = model.layout.family.encoder_in_transformers
    assert [note[:19] for note in notes] == ["transformers has no"] * (not in_transformers)
    assert all(name in model_info.describe_model(tmp_path) for name in sorted(release.extra)[:1])
    model.save(tmp_path / "again")
    again = bert_jax.load(tmp_path / "again", tokenizer=False)
    assert again.config == model.config and trees_equal(again.params, model.params)
    saved = json.loads((tmp_path / "again/config.json").read_text())
    assert saved.get("output_past") == release.keys.get("output_past"), "a key that we do not know is kept"


BERTS = [name for name, release in RELEASED.items() if release.family == "bert"]


@pytest.mark.slow
@pytest.mark.parametrize("name", long_except(BERTS, ["TinyBERT"]))
def test_transformers_computes_the_same_from_a_bert_of_another_name(name, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    write(tmp_path, RELEASED[name])
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path).eval()
    tokens = np.arange(1, 21).reshape(2, 10)
    batch = {"input_ids": tokens, "token_type_ids": tokens % 2, "attention_mask": np.ones_like(tokens)}
    model = bert_jax.load(tmp_path, tokenizer=False)
    ours = compute_outputs(model, batch)
    with torch.no_grad():
        answer = theirs(torch.from_numpy(tokens), token_type_ids=torch.from_numpy(batch["token_type_ids"]))
    np.testing.assert_allclose(ours["nsp"], answer.seq_relationship_logits, atol=1e-5)
    np.testing.assert_allclose(ours["mlm"], answer.prediction_logits, atol=1e-5)


@pytest.mark.slow
def test_what_an_electra_is_fine_tuned_to_has_its_pooler(tmp_path):
    write(tmp_path, RELEASED["ELECTRA's discriminator"])
    model = bert_jax.load(tmp_path, tokenizer=False)
    with pytest.raises(BertJaxError, match="ElectraForMaskedLM"):
        model.require_head(("mlm",), "fill_mask")
    classifier = bert_jax.load(tmp_path, head="classify", labels=["a", "b"], tokenizer=False)
    assert classifier.config.pooler.activation == "gelu" and classifier.config.pooler.dropout
    classifier.save(tmp_path / "classifier")
    assert bert_jax.load(tmp_path / "classifier", tokenizer=False).layout.heads == ("classify",)


@pytest.mark.slow
def test_a_saved_modernbert_names_its_layers_in_both_ways(tmp_path):
    write(tmp_path, RELEASED["ModernBERT"])
    names = set(load_file(tmp_path / "model.safetensors"))
    assert "model.layers.1.attn_norm.weight" in names and "model.layers.0.attn_norm.weight" not in names
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.config.pooler.mean
    model.save(tmp_path / "again")
    saved = json.loads((tmp_path / "again/config.json").read_text())
    assert saved["layer_types"] == ["full_attention", "sliding_attention"] * 2 + ["full_attention"]
    assert saved["rope_parameters"]["sliding_attention"]["rope_theta"] == saved["local_rope_theta"] == 100.0
    assert saved["global_attn_every_n_layers"] == 2 and saved["local_attention"] == 8
