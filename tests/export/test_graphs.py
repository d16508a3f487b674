"""The outputs of ONNX graphs are ours, for every family, every head and texts of any length."""

import numpy as np
import pytest

from bert_jax.hub.families import FAMILIES
from bert_jax.models.heads import HEADS
from tests.support.cases import long_except
from tests.support.onnx_models import BATCHES, CASES, SmallModel, compute_with_jax, random_texts, run_graph

TOLERANCE = 1e-5
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
            compare(head, outputs, expected, numbers)


def compare(head: str | None, outputs: dict, expected: dict, numbers: list[int]) -> None:
    names, values = list(outputs), list(outputs.values())
    if head == "answer":
        assert names == ["start_logits", "end_logits"]
        values = [np.stack(values, axis=-1)]
    else:
        assert names == (["last_hidden_state"] if head is None else ["logits"])
    compares = head is not None and HEADS[head].compares
    if compares:  # numbers of pairs
        numbers = [first // 2 for first in numbers[::2]]
    each_token = head is None or HEADS[head].each_token
    assert len(values[0]) == len(numbers)
    for number, row in zip(numbers, values[0], strict=True):
        ours = expected["hidden" if head is None else head][number]
        row = row[: len(ours)] if each_token else row
        np.testing.assert_allclose(row, ours, atol=TOLERANCE, rtol=0, err_msg=head)
