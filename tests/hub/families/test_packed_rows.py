"""Texts that share a row have in every family the outputs and gradients of texts with rows of their own."""

from dataclasses import replace

import pytest

from tests.support.cases import long_except
from tests.support.families import FAMILY_CONFIGS, family_layout
from tests.support.packing import assert_packed_equals_separate

LABELS = ("a", "b", "c")
# Family -> keys beside those of its small config, and heads.
ROWS = {
    "albert": ({"num_hidden_layers": 4, "num_hidden_groups": 2}, ("mlm", "sop", "classify")),
    "distilbert": ({}, ("mlm", "classify")),
    "electra": ({}, ("mlm", "replaced", "classify")),
    "modernbert": ({}, ("mlm", "classify")),
    "modernbert, the mean": ({"classifier_pooling": "mean"}, ("classify",)),
    "nomic_bert": ({}, ("mlm", "classify")),
    "mpnet": ({}, ("mlm",)),
    "sinusoidal_bert": ({}, ("mlm", "classify")),
    "jina_bert": ({}, ("mlm", "classify")),
    "mosaic_bert": ({}, ("mlm",)),
    "eurobert": ({}, ("mlm", "classify")),
    "deberta-v2": ({}, ("mlm",)),
    "deberta-v2, projections of its own": ({"share_att_key": False, "type_vocab_size": 3}, ("mlm",)),
    "deberta": ({}, ("mlm",)),
}
# Near layers and rotary positions, and relative positions.
ORDINARY = ("modernbert", "deberta-v2")


@pytest.mark.ci
@pytest.mark.parametrize("row", long_except(ROWS, ORDINARY))
def test_packed_texts_equal_separate_ones(row):
    keys, heads = ROWS[row]
    name = row.partition(",")[0]
    layout = family_layout(name, FAMILY_CONFIGS[name] | {"vocab_size": 61} | keys, heads, LABELS)
    if layout.config.block == "disentangled":  # with the table that only the mask decoder reads
        layout = replace(layout, config=layout.config.replace(positions="decoder"))
    assert_packed_equals_separate(layout)
