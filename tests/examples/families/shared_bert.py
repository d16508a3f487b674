"""BERT with groups of layers that share their parameters; a file numbers the groups."""

from dataclasses import replace

from bert_jax.hub.families import bert

FAMILY = replace(
    bert.FAMILY,
    model_type="shared-bert",
    class_name="SharedBert",
    fields=bert.FIELDS | {"layer_groups": 1},
    keys=bert.KEYS | {"layer_groups": "num_hidden_groups"},
)
