"""CamemBERT: RoBERTa under another name."""

from dataclasses import replace

from bert_jax.hub.families import bert, roberta

FAMILY = replace(roberta.FAMILY, model_type="camembert", class_name="Camembert", fields=bert.FIELDS)
