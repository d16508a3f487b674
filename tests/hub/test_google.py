"""A checkpoint as google-research/bert writes it: TensorFlow 1 names, optimizer slots, gamma and beta."""

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from tests.support.google_checkpoints import GOOGLE_CONFIG, google_shapes, write_google_checkpoint
from tests.support.model_outputs import compute_outputs
from tests.support.seeded_arrays import seeded_tensors


@pytest.fixture(scope="module")
def values():
    return seeded_tensors(google_shapes(), seed=3)


@pytest.fixture(scope="module")
def directory(values, tmp_path_factory):
    return write_google_checkpoint(tmp_path_factory.mktemp("google"), values)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*embedding rows have no token")
def test_outputs_after_import_equal_the_reference(directory, values, tmp_path):
    """The reference reads the same TensorFlow values under its own names, without any of our mapping."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    bert_jax.load(directory).save(tmp_path)
    config = transformers.BertConfig(
        **{k: v for k, v in GOOGLE_CONFIG.items() if k not in ("directionality", "pooler_type")}
    )
    theirs = transformers.BertForPreTraining(config).eval()
    parameters = dict(theirs.named_parameters())
    assert len(parameters) == len(values)
    for name, value in values.items():
        *scopes, last = name.replace("layer_", "layer.").split("/")
        last = {"gamma": "weight", "beta": "bias", "kernel": "weight", "output_weights": "weight"}.get(
            last, last
        )
        last = "bias" if last == "output_bias" else last
        path = ".".join([*scopes, last]) + ".weight" * last.endswith("_embeddings")
        with torch.no_grad():
            parameters[path].copy_(torch.tensor(value.T if name.endswith("kernel") else value))
    texts = ["the quick fox", "Playing over the lazy dog [MASK] un"]
    for path in (directory, tmp_path):
        model = bert_jax.load(path)
        for text, hidden in zip(texts, model.hidden_states(texts), strict=True):
            (encoding,) = model.tokenizer.encode([text])
            ids = torch.tensor([encoding.input_ids])
            batch = {
                name: np.array([row])
                for name, row in (
                    ("input_ids", encoding.input_ids),
                    ("token_type_ids", encoding.token_type_ids),
                )
            }
            ours = compute_outputs(model, batch | {"attention_mask": np.ones_like(batch["input_ids"])})
            with torch.no_grad():
                expected = theirs(ids, output_hidden_states=True)
            np.testing.assert_allclose(hidden, expected.hidden_states[-1][0], atol=1e-5)
            np.testing.assert_allclose(ours["mlm"], expected.prediction_logits, atol=1e-5)
            np.testing.assert_allclose(ours["nsp"], expected.seq_relationship_logits, atol=1e-5)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_said(directory, tmp_path):
    for path in directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    data = next(tmp_path.glob("*.data-*"))
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(BertJaxError, match="checkpoint") as caught:
        bert_jax.load(tmp_path)
    assert "\n" not in str(caught.value)
    next(tmp_path.glob("*.index")).write_bytes(b"nothing")
    with pytest.raises(BertJaxError, match="checkpoint"):
        bert_jax.load(tmp_path)
