"""Configs of a pre-training for a slice."""

from bert_jax.pod.topology import parse_slice
from bert_jax.tasks import load_config
from bert_jax.tasks.pretrain import Config
from tests.support.project import ROOT

CONFIG = str(ROOT / "configs/pretrain.py")


HERE = parse_slice("v5e:4x4")


def settings(*overrides: str, name: str = "base") -> Config:
    return load_config(f"{CONFIG}:{name}", overrides, "tpu")[1]
