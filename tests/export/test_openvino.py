"""OpenVINO computes the outputs of ONNX Runtime from our graphs: `pip install openvino==2026.4.1`, then -m long."""

import numpy as np
import pytest

from bert_jax.export.model_graph import make_model
from tests.support.onnx_models import (
    BATCHES,
    CASES,
    SmallModel,
    graph_inputs,
    random_texts,
    run_graph,
)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_openvino_computes_the_same(case):
    import openvino  # here, because only those who run the longest tests need it

    model, core = SmallModel.of_case(case), openvino.Core()
    # By default it computes in bfloat16 where the processor can.
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    texts = random_texts(model.layout)
    for head in (None, *model.layout.heads):
        session, layout = model.session(head), model.with_head(head)
        content = make_model(layout, model.params).SerializeToString()
        compiled = core.compile_model(core.read_model(content), "CPU")
        for numbers in BATCHES:
            batch = graph_inputs(layout, [texts[number] for number in numbers])
            real = batch["attention_mask"] > 0
            for name, values in run_graph(session, layout, [texts[number] for number in numbers]).items():
                theirs = compiled(batch)[name]
                each_token = values.shape[:2] == real.shape
                assert theirs.shape == values.shape
                pairs = (theirs[real], values[real]) if each_token else (theirs, values)
                np.testing.assert_allclose(*pairs, atol=1e-5, rtol=0, err_msg=f"{head} {name}")
