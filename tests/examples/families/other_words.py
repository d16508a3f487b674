"""A family whose parameters and keys have other names, and absent keys other values."""

from bert_jax.hub.family import Family
from bert_jax.hub.parts import ParameterMapping, attention_output, fused_qkv, layer_norm, linear


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
        "words": ("vocab_size", 12),
        "dim": ("hidden_size", 16),
        "n_layers": ("layers", 3),
        "n_heads": ("heads", 4),
        "hidden_dim": ("feed_forward", 24),
        "places": ("max_positions", 20),
        "kinds": ("segment_types", 1),
        "eps": ("norm_epsilon", 1e-7),
        "drop": ("dropout", 0.0),
        "classifier_drop": ("head_dropout", 0.2),
        "activation": ("activation", "relu"),
    },
    constants={"block": "post_norm", "layer_groups": 0, "tied_decoder": True},
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
    extra=(r"^steps$",),
)
