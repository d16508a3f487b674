"""Models of other names that are plain BERTs: mBERT, MiniLM and TinyBERT, in the layout of their released files."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.report import model_info
from tests.support.cases import long_except
from tests.support.released_models import add_tensors, write_released

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 40, "vocab_size": 61}
COMMON = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02,
    "max_position_embeddings": 64, "type_vocab_size": 2,
}  # fmt: skip
BUFFERS = {"bert.embeddings.position_ids": np.arange(64)[None]}
DENSE = {"weight": np.ones((48, 24), np.float32), "bias": np.ones(48, np.float32)}
RELATIVES = {
    "mBERT": (
        {
            "architectures": ["BertForMaskedLM"], "directionality": "bidi", "layer_norm_eps": 1e-12, "pad_token_id": 0,
            "num_attention_heads": 12, "pooler_fc_size": 24, "pooler_num_attention_heads": 12,
            "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
        },
        {"cls.predictions.decoder.weight": np.ones((61, 24), np.float32)},
    ),
    "MiniLM": ({"architectures": ["BertModel"], "layer_norm_eps": 1e-12, "num_attention_heads": 12}, BUFFERS),
    # Without model_type and architectures, and heads of an odd size.
    "TinyBERT": (
        {
            "model_type": None, "cell": {}, "emb_size": 24, "structure": [], "pre_trained": "",
            "num_attention_heads": 8,
        },
        {f"fit_denses.{i}.{name}": value for i in range(3) for name, value in DENSE.items()},
    ),
    "TinyBERT of one layer to its teacher": (
        {"model_type": None, "num_attention_heads": 8},
        {f"fit_dense.{name}": value for name, value in DENSE.items()},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RELATIVES)
def test_a_plain_bert_of_another_name_opens(name, tmp_path):
    keys, extra = RELATIVES[name]
    keys = COMMON | SIZES | keys
    params = write_released(tmp_path, "bert", keys, ("mlm", "nsp"))
    (tmp_path / "config.json").write_text(
        json.dumps(
            {key: value for key, value in ({"model_type": "bert"} | keys).items() if value is not None}
        )
    )
    add_tensors(tmp_path, extra)
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.layout.family.model_type == "bert" and model.layout.heads == ("mlm", "nsp")
    np.testing.assert_array_equal(
        model.params["encoder"]["embeddings"]["words"], params["encoder"]["embeddings"]["words"]
    )
    facts = model_info.collect(tmp_path)
    assert facts["unread"] == sorted(extra)
    assert not [note for note in facts["odd"] if "tokenizer" not in note]


@pytest.mark.slow
@pytest.mark.parametrize("name", long_except(RELATIVES, ["MiniLM", "TinyBERT"]))
def test_transformers_computes_the_same_from_it(name, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    keys = COMMON | SIZES | RELATIVES[name][0]
    write_released(
        tmp_path, "bert", {key: value for key, value in keys.items() if value is not None}, ("mlm", "nsp")
    )
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path).eval()
    tokens = np.arange(1, 21).reshape(2, 10)
    batch = {"input_ids": tokens, "token_type_ids": tokens % 2, "attention_mask": np.ones_like(tokens)}
    model = bert_jax.load(tmp_path, tokenizer=False)
    ours = model.module.apply({"params": model.params}, batch)
    with torch.no_grad():
        answer = theirs(torch.from_numpy(tokens), token_type_ids=torch.from_numpy(batch["token_type_ids"]))
    np.testing.assert_allclose(ours["nsp"], answer.seq_relationship_logits, atol=1e-5)
    np.testing.assert_allclose(ours["mlm"], answer.prediction_logits, atol=1e-5)
