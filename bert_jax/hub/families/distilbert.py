"""DistilBERT: BERT without segments and pooler, half as deep; classifiers of texts have another dense layer."""

from typing import Any

from bert_jax.hub.families import bert
from bert_jax.hub.family import LABEL_HEADS, Family
from bert_jax.hub.parameter_mapping import (
    ParameterMapping,
    attention_output,
    embeddings,
    fused_qkv,
    layer_norm,
    linear,
    masked_lm,
)
from bert_jax.models.encoder_config import EncoderConfig, PoolerConfig

FIELDS = bert.fields_without("type_vocab_size", "layer_norm_eps") | {
    "num_hidden_layers": 6,
    "head_dropout": 0.2,
    "answer_dropout": 0.1,
}
KEYS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "head_dropout": "seq_classif_dropout",
    "answer_dropout": "qa_dropout",
    "hidden_act": "activation",
}


def tag_dropout(published: dict) -> Any:
    """Return the dropout of a tagger: as in the reference, that of the hidden states, not that of a classifier."""
    rate = published.get("dropout")
    return FIELDS["hidden_dropout_prob"] if rate is None else rate


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    path, tensor = "encoder/layers/", "transformer.layer.{i}."
    qkv = [f"{tensor}attention.{name}_lin" for name in "qkv"]
    return [
        *embeddings(config),
        *fused_qkv(config, path + "attention/qkv", qkv),
        *attention_output(config, path + "attention/out", tensor + "attention.out_lin"),
        *layer_norm(path + "attention_norm", tensor + "sa_layer_norm"),
        *linear(path + "feed_forward/in", tensor + "ffn.lin1"),
        *linear(path + "feed_forward/out", tensor + "ffn.lin2"),
        *layer_norm(path + "feed_forward_norm", tensor + "output_layer_norm"),
    ]


FAMILY = Family(
    model_type="distilbert",
    class_name="DistilBert",
    prefix="distilbert",
    fields=FIELDS,
    keys=KEYS,
    constants={"type_vocab_size": 0, "pooler": PoolerConfig("relu")},
    derived={"tag_dropout": tag_dropout},
    supported={"quantization_config": ()},
    encoder=encoder,
    pooler=[],
    heads=LABEL_HEADS
    | {
        "mlm": masked_lm("vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"),
        "classify": [*linear("pooler/dense", "pre_classifier"), *linear("classify/dense", "classifier")],
    },
    sizes={"distilbert-base": {}},
    known_extra_tensors=(r"embeddings\.position_ids$", r"^vocab_projector\.weight$"),
)
