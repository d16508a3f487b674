"""OpenVINO computes the outputs of ONNX Runtime from our graphs."""

import numpy as np
import pytest

from bert_jax.export.model_graph import make_model
from bert_jax.export.onnx_directory import save_onnx
from bert_jax.hub.onnx_files import OnnxFile
from bert_jax.inference.engines.openvino import OpenVinoSession
from tests.support.cases import long_except
from tests.support.onnx_models import (
    BATCHES,
    CASES,
    SmallModel,
    graph_inputs,
    random_texts,
    run_graph,
)


@pytest.mark.slow
@pytest.mark.parametrize("case", long_except(list(CASES), ["bert", "modernbert"]))
def test_openvino_computes_the_same(case, tmp_path):
    model = SmallModel.of_case(case)
    texts = random_texts(model.layout)
    for number, head in enumerate((None, *model.layout.heads)):
        session, layout = model.session(head), model.with_head(head)
        path = tmp_path / f"{number}.onnx"
        save_onnx(path, make_model(layout, model.params))
        compiled = OpenVinoSession(OnnxFile(path, "float32"))
        for numbers in BATCHES:
            batch = graph_inputs(layout, [texts[number] for number in numbers])
            real = batch["attention_mask"] > 0
            for name, values in run_graph(session, layout, [texts[number] for number in numbers]).items():
                (theirs,) = compiled.run(batch, [name]).values()
                each_token = values.shape[:2] == real.shape
                assert theirs.shape == values.shape
                pairs = (theirs[real], values[real]) if each_token else (theirs, values)
                np.testing.assert_allclose(*pairs, atol=1e-5, rtol=0, err_msg=f"{head} {name}")
