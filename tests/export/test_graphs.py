"""The outputs of ONNX graphs are ours, for every family, every head and texts of any length."""

import pytest

from bert_jax.hub.families import FAMILIES
from tests.support.cases import long_except
from tests.support.onnx_models import (
    BATCHES,
    CASES,
    SmallModel,
    assert_outputs_are_ours,
    compute_with_jax,
    random_texts,
    run_graph,
)

ORDINARY = [name for name in CASES if "," not in name]


def test_every_family_has_a_case():
    assert {FAMILIES[family].model_type for family, _ in CASES.values()} == {
        FAMILIES[name].model_type for name in FAMILIES.names()
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", long_except(CASES, ORDINARY))
def test_hidden_states_and_logits_are_ours(case):
    model = SmallModel.of_case(case)
    texts = random_texts(model.layout)
    expected = compute_with_jax(model, texts)
    for head in (None, *model.layout.heads):
        session, layout = model.session(head), model.with_head(head)
        for numbers in BATCHES:
            outputs = run_graph(session, layout, [texts[number] for number in numbers])
            assert_outputs_are_ours(head, outputs, expected, numbers)
