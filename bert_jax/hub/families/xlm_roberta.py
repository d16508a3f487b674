"""XLM-R: RoBERTa under another name."""

from dataclasses import replace

from bert_jax.hub.families import bert, roberta

FAMILY = replace(roberta.FAMILY, model_type="xlm-roberta", class_name="XLMRoberta", fields=bert.FIELDS)
