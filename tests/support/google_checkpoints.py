"""A checkpoint as google-research/bert writes it: TensorFlow 1 names, optimizer slots, gamma and beta."""

import json
from pathlib import Path

import numpy as np

from tests.support.vocabularies import write_wordpiece

GOOGLE_CONFIG = {
    "attention_probs_dropout_prob": 0.1, "directionality": "bidi", "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 24, "initializer_range": 0.02, "intermediate_size": 40, "max_position_embeddings": 32,
    "num_attention_heads": 3, "num_hidden_layers": 2, "pooler_fc_size": 24, "pooler_type": "first_token_transform",
    "type_vocab_size": 2, "vocab_size": 270,
}  # fmt: skip


def google_shapes() -> dict[str, tuple[int, ...]]:
    D, F, V = GOOGLE_CONFIG["hidden_size"], GOOGLE_CONFIG["intermediate_size"], GOOGLE_CONFIG["vocab_size"]
    norm = {"LayerNorm/gamma": (D,), "LayerNorm/beta": (D,)}
    dense = {"dense/kernel": (D, D), "dense/bias": (D,)}
    shapes = {
        "bert/embeddings/word_embeddings": (V, D),
        "bert/embeddings/position_embeddings": (GOOGLE_CONFIG["max_position_embeddings"], D),
        "bert/embeddings/token_type_embeddings": (2, D),
        **{f"bert/embeddings/{name}": shape for name, shape in norm.items()},
        **{f"bert/pooler/{name}": shape for name, shape in dense.items()},
        **{f"cls/predictions/transform/{name}": shape for name, shape in (norm | dense).items()},
        "cls/predictions/output_bias": (V,),
        "cls/seq_relationship/output_weights": (2, D),
        "cls/seq_relationship/output_bias": (2,),
    }
    for layer in range(GOOGLE_CONFIG["num_hidden_layers"]):
        at = f"bert/encoder/layer_{layer}"
        for name in ("query", "key", "value"):
            shapes |= {f"{at}/attention/self/{name}/kernel": (D, D), f"{at}/attention/self/{name}/bias": (D,)}
        shapes |= {f"{at}/attention/output/{name}": shape for name, shape in (norm | dense).items()}
        shapes |= {f"{at}/intermediate/dense/kernel": (D, F), f"{at}/intermediate/dense/bias": (F,)}
        shapes |= {f"{at}/output/dense/kernel": (F, D), f"{at}/output/dense/bias": (D,)}
        shapes |= {f"{at}/output/{name}": shape for name, shape in norm.items()}
    return shapes


def write_google_checkpoint(directory: Path, values: dict[str, np.ndarray]) -> Path:
    from bert_jax.text.host_tensorflow import tf

    write_wordpiece(directory)
    (directory / "bert_config.json").write_text(json.dumps(GOOGLE_CONFIG))
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
