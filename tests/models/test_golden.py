"""The reference's recorded numbers, for machines without torch."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.inference.load import load
from bert_jax.losses import loss as losses
from tests.support.golden_bert import GOLDEN_FILE, summarize_gradient
from tests.support.seeded_arrays import seeded_batch, seeded_tensors

pytestmark = pytest.mark.optimized
GOLDEN = json.loads(GOLDEN_FILE.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("class_name", GOLDEN["models"])
def test_outputs_loss_and_gradients_are_the_recorded_ones(class_name, tmp_path):
    golden = GOLDEN["models"][class_name]
    config, seed = golden["config"], GOLDEN["seed"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(seeded_tensors(golden["shapes"], seed), tmp_path / "model.safetensors")
    model = load(tmp_path, tokenizer=False)
    batch = seeded_batch(3, 18, config["vocab_size"], config["type_vocab_size"], 4, seed)

    def loss(params):
        out = model.module.apply({"params": params}, batch)
        if class_name == "BertForPreTraining":
            mlm = losses.cross_entropy(out["mlm"], batch["targets"], batch["target_weights"])
            return mlm.mean + losses.cross_entropy(
                out["nsp"], batch["labels"], batch["label_weights"]
            ).mean, out
        return losses.cross_entropy(out["classify"], batch["labels"], batch["label_weights"]).mean, out

    (ours, out), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(model.params)
    assert float(ours) == pytest.approx(golden["loss"], abs=1e-5)
    real = batch["attention_mask"] > 0
    assert np.abs(np.asarray(out["hidden"]) - np.array(golden["hidden"]))[real].max() <= 1e-5
    gradients = to_hf_tensors(model.layout, gradients)
    assert set(gradients) == set(golden["gradients"])
    whole = np.sqrt(sum(norm**2 for norm, _ in golden["gradients"].values()))
    for name, recorded in golden["gradients"].items():
        assert np.abs(np.subtract(summarize_gradient(name, gradients[name]), recorded)).max() <= 1e-4 * max(
            recorded[0], 1e-3 * whole
        )
