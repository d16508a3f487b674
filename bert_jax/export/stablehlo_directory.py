"""Directories with a model as a StableHLO program, which JAX runs without this package.

`stablehlo/model.jax_export` is what `jax.export.deserialize` reads, `stablehlo/model.safetensors` its first
argument. Beside them stand the tokenizer, the configs and what the model knows of itself.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.export
import jaxlib.version
import numpy as np
from safetensors.numpy import load_file

from bert_jax.core import hashes, memory
from bert_jax.core.files import read_json, write_json
from bert_jax.core.output import atomic_directory
from bert_jax.export.companion_files import save_beside
from bert_jax.export.stablehlo_program import PLATFORMS, export_program, flatten_weights, output_names
from bert_jax.export.verification import Difference, measure_difference, require_equal_outputs
from bert_jax.hub.exported_names import input_names
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectory, save_tensors
from bert_jax.inference.load import load
from bert_jax.inference.onnx_session import require_packages

FOLDER = "stablehlo"
PROGRAM, WEIGHTS, DESCRIPTION = "model.jax_export", "model.safetensors", "program.json"
COPIES = 6  # of the weights at once: ours, stacked, unrolled, the file's, and those of two compiled programs


@dataclass(frozen=True)
class ExportedProgram:
    path: Path
    outputs: list[str]
    difference: Difference


class ProgramSession:
    """A folder with a program and its weights, opened as another user of JAX opens it."""

    def __init__(self, folder: Path):
        program = jax.export.deserialize(bytearray((folder / PROGRAM).read_bytes()))
        description = read_json(folder / DESCRIPTION)
        self.inputs, self.outputs = list(description["inputs"]), list(description["outputs"])
        self.weights = jax.device_put(load_file(folder / WEIGHTS))
        self.call = jax.jit(program.call)

    def run(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name; the batch may hold more than the inputs."""
        read = {name: np.asarray(batch[name], np.int32) for name in self.inputs}
        return jax.device_get(self.call(self.weights, read))


def export_stablehlo(source, output) -> ExportedProgram:
    """Write the model of a directory as a program, with the files beside it; check that its outputs are ours."""
    require_packages("--format stablehlo", "flatbuffers")  # in whose format JAX writes programs
    directory = ModelDirectory.open(source)
    size = 4 * sum(map(math.prod, directory.tensors.shapes.values()))
    memory.require_free_memory(COPIES * size, f"the export of {source}", "export it on a larger machine")
    model, output = load(directory), Path(output)
    with atomic_directory(output) as new:
        folder = new / FOLDER
        folder.mkdir()
        program, weights = export_program(model.layout, flatten_weights(model.params))
        (folder / PROGRAM).write_bytes(program.serialize())
        save_tensors(folder, weights)
        write_json(folder / DESCRIPTION, describe(model.layout, program))
        session = ProgramSession(folder)
        difference = measure_difference(model, session)
        require_equal_outputs(difference, "the program", source, output)
        save_beside(new, model)
        hashes.write_hashes(new)
    return ExportedProgram(output / FOLDER / PROGRAM, session.outputs, difference)


def describe(layout: Layout, program: jax.export.Exported) -> dict:
    """Return what a reader of the program has to know."""
    return {
        "inputs": input_names(layout),
        "outputs": output_names(layout),
        "dtype": "int32",
        "max_length": layout.config.max_position_embeddings,
        "platforms": PLATFORMS,
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "calling_convention_version": program.calling_convention_version,
        "compatibility": "JAX reads programs of versions released up to 6 months before it and up to 3 weeks after it",
    }
