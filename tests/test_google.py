"""A checkpoint as google-research/bert writes it: TensorFlow 1 names, optimizer slots, gamma and beta."""

import json
from pathlib import Path

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

import bert_jax
from bert_jax.core.errors import BertJaxError
from seeded import seeded_tensors
from vocabularies import wordpiece

CONFIG = {
    "attention_probs_dropout_prob": 0.1, "directionality": "bidi", "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 24, "initializer_range": 0.02, "intermediate_size": 40, "max_position_embeddings": 32,
    "num_attention_heads": 3, "num_hidden_layers": 2, "pooler_fc_size": 24, "pooler_type": "first_token_transform",
    "type_vocab_size": 2, "vocab_size": 270,
}  # fmt: skip


def google_shapes() -> dict[str, tuple[int, ...]]:
    D, F, V = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    norm = {"LayerNorm/gamma": (D,), "LayerNorm/beta": (D,)}
    dense = {"dense/kernel": (D, D), "dense/bias": (D,)}
    shapes = {
        "bert/embeddings/word_embeddings": (V, D),
        "bert/embeddings/position_embeddings": (CONFIG["max_position_embeddings"], D),
        "bert/embeddings/token_type_embeddings": (2, D),
        **{f"bert/embeddings/{name}": shape for name, shape in norm.items()},
        **{f"bert/pooler/{name}": shape for name, shape in dense.items()},
        **{f"cls/predictions/transform/{name}": shape for name, shape in (norm | dense).items()},
        "cls/predictions/output_bias": (V,),
        "cls/seq_relationship/output_weights": (2, D),
        "cls/seq_relationship/output_bias": (2,),
    }
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"bert/encoder/layer_{layer}"
        for name in ("query", "key", "value"):
            shapes |= {f"{at}/attention/self/{name}/kernel": (D, D), f"{at}/attention/self/{name}/bias": (D,)}
        shapes |= {f"{at}/attention/output/{name}": shape for name, shape in (norm | dense).items()}
        shapes |= {f"{at}/intermediate/dense/kernel": (D, F), f"{at}/intermediate/dense/bias": (F,)}
        shapes |= {f"{at}/output/dense/kernel": (F, D), f"{at}/output/dense/bias": (D,)}
        shapes |= {f"{at}/output/{name}": shape for name, shape in norm.items()}
    return shapes


@pytest.fixture(scope="module")
def values():
    return seeded_tensors(google_shapes(), seed=3)


def checkpoint(directory: Path, values: dict[str, np.ndarray]) -> Path:
    from bert_jax.text.host_tensorflow import tf

    wordpiece(directory)
    (directory / "bert_config.json").write_text(json.dumps(CONFIG))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [tf.compat.v1.get_variable(name, initializer=value) for name, value in values.items()]
        for name, value in values.items():
            for slot in ("adam_m", "adam_v"):
                variables.append(
                    tf.compat.v1.get_variable(f"{name}/{slot}", initializer=np.zeros_like(value))
                )
        variables.append(tf.compat.v1.get_variable("global_step", initializer=np.int64(1000)))
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(
            session, str(directory / "bert_model.ckpt"), write_meta_graph=False
        )
    return directory


@pytest.fixture(scope="module")
def directory(values, tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("google"), values)


@pytest.mark.filterwarnings("ignore:.*embedding rows have no token")
def test_every_parameter_arrives(directory, values):
    model = bert_jax.load(directory)
    assert set(model.layout.heads) == {"mlm", "nsp"} and model.layout.pooler
    ours = flatten_dict(model.params, sep="/")
    assert sum(a.size for a in ours.values()) == sum(a.size for a in values.values())
    query = np.asarray(ours["encoder/layers/attention/qkv/kernel"])[1, :, 0].reshape(24, 24)
    np.testing.assert_array_equal(query, values["bert/encoder/layer_1/attention/self/query/kernel"])
    np.testing.assert_array_equal(ours["nsp/dense/kernel"].T, values["cls/seq_relationship/output_weights"])
    np.testing.assert_array_equal(ours["mlm/norm/scale"], values["cls/predictions/transform/LayerNorm/gamma"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*embedding rows have no token")
def test_outputs_after_import_equal_the_reference(directory, values, tmp_path):
    """The reference reads the same TensorFlow values under its own names, without any of our mapping."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    bert_jax.load(directory).save(tmp_path)
    config = transformers.BertConfig(
        **{k: v for k, v in CONFIG.items() if k not in ("directionality", "pooler_type")}
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
            ids = torch.tensor([encoding.ids])
            batch = {
                name: np.array([row])
                for name, row in (("tokens", encoding.ids), ("segments", encoding.segments))
            }
            ours = model.module.apply(
                {"params": model.params}, batch | {"mask": np.ones_like(batch["tokens"])}
            )
            with torch.no_grad():
                expected = theirs(ids, output_hidden_states=True)
            np.testing.assert_allclose(hidden, expected.hidden_states[-1][0], atol=1e-5)
            np.testing.assert_allclose(ours["mlm"], expected.prediction_logits, atol=1e-5)
            np.testing.assert_allclose(ours["nsp"], expected.seq_relationship_logits, atol=1e-5)


def test_a_damaged_checkpoint_is_said(directory, tmp_path):
    for path in directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    data = next(tmp_path.glob("*.data-*"))
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(BertJaxError, match="copy all files of the checkpoint again") as caught:
        bert_jax.load(tmp_path)
    assert "\n" not in str(caught.value)
    next(tmp_path.glob("*.index")).write_bytes(b"nothing")
    with pytest.raises(BertJaxError, match="copy all files of the checkpoint again"):
        bert_jax.load(tmp_path)
