"""Run by test_tpu_step.py in a process of its own: BERT-base's step compiled for 16 TPU chips, as a JSON summary."""

import json
import math
import re
import sys

import jax
from jax.experimental import topologies

from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.config import MeshConfig
from bert_jax.tasks.pretrain import Config, Pretraining
from bert_jax.train.sharding import make_mesh
from bert_jax.train.state import abstract_batch, abstract_state
from bert_jax.train.step import make_step

COLLECTIVES = r" (all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all)(-start)?\("


def collectives(text: str) -> list[dict]:
    """Each collective: whether it stands in a loop (so runs once a microbatch or layer), and how many f32 it moves."""
    found, entry = [], False
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            entry = line.startswith("ENTRY")
        if match := re.search(COLLECTIVES, line):
            shapes = re.findall(r"f32\[([\d,]*)\]", line[: match.start()])
            sizes = [math.prod(int(n) for n in shape.split(",") if n) for shape in shapes]
            found.append({"kind": match[1], "in_loop": not entry, "numbers": sum(sizes)})
    return found


def main() -> None:
    devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:4x4").devices
    model = EncoderConfig.named("base", dtype="bfloat16", attention_dropout=0.0)
    config = Config(model=model, random="rbg", mesh=MeshConfig(accumulate=4))
    task, mesh = Pretraining.of(config), make_mesh(config.mesh, devices)
    state, batch = abstract_state(task, config, mesh), abstract_batch(task, config, mesh, 1024, 512)
    compiled = make_step(task, config, mesh).lower(state, batch).compile()
    text = compiled.as_text()
    json.dump(
        {
            "devices": mesh.size,
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(state.params)),
            "kernels": text.count("tpu_custom_call"),
            "collectives": collectives(text),
            "temporary_bytes": compiled.memory_analysis().temp_size_in_bytes,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
