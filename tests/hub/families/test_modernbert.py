"""ModernBERT's heads begin with the transform of the masked LM."""

import numpy as np
import pytest

import bert_jax
from bert_jax.hub import model_directory as hub
from bert_jax.training import warm_start
from bert_jax.training.task import Task
from tests.support.families import FAMILY_CONFIGS, write_released

FIELDS = FAMILY_CONFIGS["modernbert"] | {"vocab_size": 61}


@pytest.mark.slow
@pytest.mark.parametrize("head", ["classify", "tag"])
def test_a_new_head_begins_with_the_transform_of_the_masked_lm(tmp_path, head):
    params = write_released(tmp_path, "modernbert", FIELDS, ("mlm",))
    opened = bert_jax.load(tmp_path, head=head, labels=["a", "b"], tokenizer=False)
    layout = hub.ModelDirectory.open(tmp_path).layout.with_head(head, ["a", "b"])
    begun, missing = warm_start.read_initial_params(hub.ModelDirectories(), str(tmp_path), Task(layout), 0)
    assert missing == [head]
    for found in (opened.params, begun):  # opened, and begun to be fine-tuned
        part = found["pooler" if head == "classify" else "transform"]
        np.testing.assert_array_equal(part["dense"]["kernel"], params["mlm"]["transform"]["kernel"])
        np.testing.assert_array_equal(part["norm"]["scale"], params["mlm"]["norm"]["scale"])
