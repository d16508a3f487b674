"""A training step compiled for an H200 by JAX's CUDA compiler, without having one: FLOPs and bytes of its parts."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import use_abstract_mesh

from bert_jax import tasks
from bert_jax.core.errors import BertJaxError
from bert_jax.models.cost import global_share
from bert_jax.pod.compile import trace_step
from bert_jax.pod.flops import count_flops
from bert_jax.pod.hlo import parse_computations
from bert_jax.report.plots import ACCENT, PALE, put_legend_above, save_plot
from bert_jax.report.prediction_page import markdown_table
from bert_jax.training.sharding import make_mesh
from tests.bench.program_parts import read_parts

# NVIDIA's figures, in the form in which XLA describes a GPU to its compiler.
H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 151397597184
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  name: "NVIDIA H200" device_vendor: "NVIDIA Corporation" platform_version: "Compute Capability 9.0a"
  driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 } device_description_str: "NVIDIA H200"
"""
# Instructions that name values, and run nothing.
NAMES = {"tuple", "get-tuple-element", "parameter", "bitcast", "constant", "while", "conditional", "call"}
VARIANTS = {
    "XLA's attention, as a loop": ("model.attention=xla", "model.unroll=False"),
    "flash, as a loop": ("model.attention=flash", "model.unroll=False"),
    "flash, unrolled": ("model.attention=flash", "model.unroll=True"),
}


class Step(NamedTuple):
    teraflops: float
    temporaries: float  # GiB
    gigabytes: Counter[str]  # that the operations of each part read and write


def compare_steps(spec: str, overrides: Sequence[str], picture: str | None) -> str:
    steps = {name: compile_step(spec, [*overrides, *settings]) for name, settings in VARIANTS.items()}
    parts = sum((step.gigabytes for step in steps.values()), Counter[str]())
    rows = [
        (part, *(f"{step.gigabytes[part]:.1f}" for step in steps.values())) for part, _ in parts.most_common()
    ]
    rows.append(("all, GB", *(f"{step.gigabytes.total():.1f}" for step in steps.values())))
    rows.append(("temporaries, GiB", *(f"{step.temporaries:.1f}" for step in steps.values())))
    rows.append(("TFLOP", *(f"{step.teraflops:.1f}" for step in steps.values())))
    if picture:
        draw_steps(Path(picture), [part for part, _ in reversed(parts.most_common())], steps)
    return "\n".join(markdown_table(["GB by part", *steps], rows))


def compile_step(spec: str, overrides: Sequence[str]) -> Step:
    _, config = tasks.load_config(spec, overrides, "gpu")
    mesh = make_mesh(config.mesh, gpu_devices())
    with use_abstract_mesh(mesh.abstract_mesh):
        outline = tasks.outline_run(config)
        _, _, step = trace_step(outline, outline.phases[-1], mesh)
        compiled = step.lower().compile()
    return Step(
        count_flops(step.jaxpr, global_share(outline.task.layout.config))[0] / 1e12,
        compiled.memory_analysis().temp_size_in_bytes / 2**30,
        gigabytes_by_part(compiled.as_text()),
    )


def gpu_devices() -> list:
    jax.config.update("jax_platforms", "cpu")
    jax.devices()  # reads the plugins
    try:
        described = topologies.get_topology_desc(
            platform="cuda", topology_name="h200", target_config=H200, topology="1x1x1"
        )
    except NotImplementedError as error:
        raise BertJaxError(
            "JAX's CUDA compiler is not installed: pip install -e '.[cuda]' in an environment of its own"
        ) from error
    return list(described.devices)


def gigabytes_by_part(text: str) -> Counter[str]:
    kinds = {
        name: instruction.opcode
        for computation in parse_computations(text)[0].values()
        for name, instruction in computation.items()
    }
    total = Counter[str]()
    for name, part in read_parts(text).items():
        # An asynchronous copy counts where it starts.
        if kinds[name] not in NAMES and not kinds[name].endswith("-done"):
            total[part.name] += part.bytes * part.trips / 1e9
    return total


def draw_steps(path: Path, parts: Sequence[str], steps: dict[str, Step]) -> None:
    def bars(axes) -> None:
        places, height = np.arange(len(parts)), 0.8 / len(steps)
        for number, (name, step) in enumerate(steps.items()):
            colour, hatch = (("0.75", "...."), (PALE, "////"), (ACCENT, ""))[number]
            axes.barh(
                places + (1 - number) * height, [step.gigabytes[part] for part in parts], height,
                color=colour, hatch=hatch, edgecolor="white", label=f"{name}: {step.gigabytes.total():.0f} GB",
            )  # fmt: skip
        axes.set_yticks(places, parts)
        axes.set_xlabel("GB that a step reads and writes", fontsize=9)
        put_legend_above(axes, len(steps))

    save_plot(path, (9, 0.42 * len(parts) + 1.2), bars)
