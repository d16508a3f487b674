"""DistilBERT's files."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import FAMILIES
from bert_jax.report import model_info
from tests.support.family_sizes import DISTILBERT_FIELDS
from tests.support.packing import assert_packed_equals_separate
from tests.support.released_models import add_tensors, family_layout, write_released

# The keys that Hugging Face's files of 2019 have beside the sizes.
OLD_KEYS = {
    "activation": "gelu", "attention_dropout": 0.1, "dropout": 0.1, "initializer_range": 0.02, "pad_token_id": 0,
    "max_position_embeddings": 512, "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False,
    "tie_weights_": True, "output_past": True,
}  # fmt: skip


@pytest.mark.slow
def test_a_released_directory_opens(tmp_path):
    config = OLD_KEYS | DISTILBERT_FIELDS | {"architectures": ["DistilBertForMaskedLM"]}
    params = write_released(tmp_path, "distilbert", config, ("mlm",))
    words = params["encoder"]["embeddings"]["words"]
    add_tensors(tmp_path, {
        "distilbert.embeddings.position_ids": np.arange(512)[None], "vocab_projector.weight": words,
    })  # fmt: skip
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.layout.heads == ("mlm",) and not model.layout.pooler
    facts = model_info.collect(tmp_path)
    assert facts["unread"] == ["distilbert.embeddings.position_ids", "vocab_projector.weight"]
    assert "not read    distilbert.embeddings.position_ids, vocab_projector" in model_info.describe(tmp_path)
    model.save(tmp_path / "again")
    assert json.loads((tmp_path / "again/config.json").read_text())["tie_weights_"] is True


def test_rates_of_dropout_are_those_of_the_heads():
    config = FAMILIES["distilbert"].read_config({"dropout": 0.3, "qa_dropout": 0.4}, "config.json")
    rates = (config.dropout, config.head_dropout, config.tag_dropout, config.answer_dropout)
    assert rates == (0.3, 0.2, 0.3, 0.4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 5}, "heads = 5 does not divide hidden_size = 24; 4 does"),
        ({"n_layers": -1}, "n_layers = -1 is not a size that a model can have"),
        ({"dim": None}, "[61, 24] where the config asks for [61, 768]"),
        ({"activation": "gelo"}, 'activation = "gelo" is not supported; did you mean "gelu"?'),
        ({"dropout": "half"}, 'config.json: "dropout" is a text, not a finite number'),
    ],
)  # fmt: skip
def test_absurd_configs(tmp_path, changes, message):
    write_released(tmp_path, "distilbert", DISTILBERT_FIELDS | changes, ("mlm",), DISTILBERT_FIELDS)
    with pytest.raises(BertJaxError) as error:
        bert_jax.load(tmp_path, tokenizer=False)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.long
def test_packed_rows_equal_separate_ones():
    assert_packed_equals_separate(
        family_layout("distilbert", DISTILBERT_FIELDS, ("mlm", "classify"), ("a", "b", "c"))
    )
