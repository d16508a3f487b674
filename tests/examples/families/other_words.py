"""A family whose parameters and keys have other names, and absent keys other values."""

from bert_jax.hub.family import Family
from bert_jax.hub.parameter_mapping import ParameterMapping, attention_output, fused_qkv, layer_norm, linear


def encoder(config):
    ours, theirs = "encoder/layers/", "stack.{i}."
    return [
        ParameterMapping("encoder/embeddings/words", ("tokens.table",), per_entry=True),
        ParameterMapping("encoder/embeddings/positions", ("places.table",), per_position=True),
        ParameterMapping("encoder/embeddings/token_types", ("kinds.table",)),
        *layer_norm("encoder/embeddings/norm", "first_norm"),
        *fused_qkv(config, ours + "attention/qkv", [f"{theirs}{name}_lin" for name in "qkv"]),
        *attention_output(config, ours + "attention/out", theirs + "out_lin"),
        *layer_norm(ours + "attention_norm", theirs + "norm1"),
        *linear(ours + "feed_forward/in", theirs + "lin1"),
        *linear(ours + "feed_forward/out", theirs + "lin2"),
        *layer_norm(ours + "feed_forward_norm", theirs + "norm2"),
    ]


FAMILY = Family(
    model_type="other-words",
    class_name="OtherWords",
    prefix="base",
    fields={
        "vocab_size": 12,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 24,
        "max_position_embeddings": 20,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-7,
        "hidden_dropout_prob": 0.0,
        "head_dropout": 0.2,
        "hidden_act": "relu",
    },
    keys={
        "vocab_size": "words",
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "max_position_embeddings": "places",
        "type_vocab_size": "kinds",
        "layer_norm_eps": "eps",
        "hidden_dropout_prob": "drop",
        "head_dropout": "classifier_drop",
        "hidden_act": "activation",
    },
    constants={"block": "post_norm", "layer_groups": 0, "tie_word_embeddings": True},
    supported={"rotary": (False,)},
    encoder=encoder,
    pooler=linear("pooler/dense", "summary"),
    heads={
        "mlm": [
            *linear("mlm/transform", "vocab_transform"),
            *layer_norm("mlm/norm", "vocab_norm"),
            ParameterMapping("mlm/bias", ("vocab_bias",), per_entry=True),
        ],
        "classify": [*linear("pooler/dense", "pre_classifier"), *linear("classify/dense", "classifier")],
        "tag": linear("tag/dense", "classifier"),
    },
    known_extra_tensors=(r"^steps$",),
)
