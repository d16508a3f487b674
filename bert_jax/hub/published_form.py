"""The published form of a model: the content of its config.json, and its tensors by their published names."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bert_jax.hub.family import OWN_HEADS
from bert_jax.hub.layout import Layout
from bert_jax.models.heads import HEADS

AUTO_MAP = "auto_map"  # Hugging Face's key for the classes of a file in the directory that open the model
MODELING_FILE = "modeling_bert_jax.py"  # that file, a copy of ours
# Heads with a class in that file, named after the architecture -> the class of transformers that opens it.
AUTO_CLASSES = dict.fromkeys(OWN_HEADS, "AutoModelForSequenceClassification") | {
    "answer": "AutoModelForQuestionAnswering"
}


def to_hf_config(layout: Layout, pad: int | None = None) -> dict:
    """Return the content of config.json; `pad` is the id of the tokenizer's padding token."""
    published = layout.family.write_config(layout.config, layout.hf_config)
    published |= {AUTO_MAP: modeling_classes(layout) | remote_classes(layout, published.pop(AUTO_MAP, None))}
    if not published[AUTO_MAP]:
        del published[AUTO_MAP]
    published["architectures"] = [layout.family.class_name + architecture(layout)]
    if layout.embedder:
        published |= layout.family.embedder_keys(layout.embedder)
    if layout.labels:
        published["id2label"] = {str(i): label for i, label in enumerate(layout.labels)}
        published["label2id"] = {label: i for i, label in enumerate(layout.labels)}
    if layout.family.position_offset:
        pad = layout.family.position_offset - 1
    return published if pad is None else published | {"pad_token_id": pad}


def architecture(layout: Layout) -> str:
    """Return the ending of the class name: "ForMaskedLM", or "Model" without heads."""
    for name, heads in layout.family.architectures.items():
        if set(heads) <= set(layout.heads):
            return name
    return HEADS[layout.heads[-1]].architecture if layout.heads else "Model"


def modeling_classes(layout: Layout) -> dict[str, str]:
    """Return the class of MODELING_FILE that opens the model, by the class of transformers that looks for it; {} if
    transformers opens the model without that file."""
    head = layout.heads[-1] if layout.heads else ""
    if head not in layout.family.not_in_transformers or head not in AUTO_CLASSES:
        return {}
    if not layout.family.encoder_in_transformers:  # that file has heads alone
        return {}
    # Our own heads have a class for all families; what only some families lack, one for each of them.
    family = "" if head in OWN_HEADS else layout.family.class_name
    return {AUTO_CLASSES[head]: f"{Path(MODELING_FILE).stem}.{family}{HEADS[head].architecture}"}


def remote_classes(layout: Layout, auto_map) -> dict[str, str]:
    """Return the entries of `auto_map`, the key of config.json, that still open the model when it is saved again.

    The code in the directory is not copied. That of a repository (OWNER/NAME--FILE.CLASS) is read there, and the
    families that transformers lacks are saved in its layout.
    """
    if layout.family.encoder_in_transformers or not isinstance(auto_map, dict):
        return {}
    return {name: path for name, path in auto_map.items() if isinstance(path, str) and "--" in path}


def to_hf_tensors(layout: Layout, params: Mapping) -> dict[str, np.ndarray]:
    """Convert the parameters to their published names and shapes."""
    from flax.traverse_util import flatten_dict

    flat = flatten_dict(params, sep="/")
    tensors: dict[str, np.ndarray] = {}
    for part in layout.parameter_mappings(prefixed=bool(layout.heads)):
        names = part.all_tensor_names(layout.config.groups)
        arrays = part.to_tensors(np.asarray(flat[part.path], np.float32))
        tensors |= zip(names, map(np.ascontiguousarray, arrays), strict=True)
    prefix = f"{layout.family.prefix}." * bool(layout.heads)
    computed = layout.family.computed_tensors(layout.config)
    return tensors | {prefix + name: array for name, array in computed.items()}
