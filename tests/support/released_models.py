"""Directories in the layout of a family's released files."""

import json

import numpy as np
from flax.traverse_util import unflatten_dict
from safetensors.numpy import load_file, save_file

from bert_jax.hub import directory as hub
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.models.heads import HEADS


def family_layout(name: str, published: dict, heads=(), labels=(), pooler: bool = False) -> Layout:
    family = FAMILIES[name]
    config = family.read_config(published, "config.json")
    pooler |= any(HEADS[head].pooler for head in heads)
    return Layout(config, family, heads, labels, pooler, published)


def write_released(path, name: str, config: dict, heads=(), of_weights: dict | None = None, **more) -> dict:
    """The parameters written; config.json has the keys of `config` alone, and the weights may fit another one."""
    layout = family_layout(name, of_weights or config, heads, **more)
    random = np.random.RandomState(0)
    shapes = layout.shapes()
    flat = {part: np.float32(0.1 * random.standard_normal(shape)) for part, shape in shapes.items()}
    params = unflatten_dict(flat, sep="/")
    hub.save(path, layout, params)
    (path / "config.json").write_text(json.dumps({"model_type": name} | config))
    return params


def add_tensors(path, more: dict) -> None:
    tensors = load_file(path / "model.safetensors")
    save_file(tensors | more, path / "model.safetensors")
