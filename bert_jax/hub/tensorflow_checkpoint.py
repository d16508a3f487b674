"""Google's original TensorFlow 1 checkpoints: bert_config.json, bert_model.ckpt.*, vocab.txt."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError, first_line

# Variables that training saves beside the parameters.
TRAINING = re.compile(
    r"(^|/)(adam_[mv]|adamweightdecay.*|beta[12]_power|global_step|.*ema.*)(:\d+)?$|^loss_scale", re.I
)
# Patterns in the names of TensorFlow's variables -> their replacements in the names that Hugging Face publishes.
RENAMED = (
    (r"^bert/", "bert."),
    (r"layer_(\d+)", r"layer.\1"),
    (r"/(gamma)$", ".weight"),
    (r"/(beta)$", ".bias"),
    (r"/kernel$", ".weight"),
    (r"_embeddings$", "_embeddings.weight"),
    (r"^cls/predictions/output_bias$", "cls.predictions.bias"),
    (r"^cls/squad/output_", "qa_outputs."),
    (r"^cls/seq_relationship/output_", "cls.seq_relationship."),
    (r"^output_(weights|bias)$", r"classifier.\1"),
    (r"\.weights$", ".weight"),
    (r"/", "."),
)


def checkpoint_in(directory: Path) -> Path | None:
    """Return the path prefix of the newest checkpoint, or None if there is none."""
    checkpoints = sorted(path.with_suffix("") for path in Path(directory).glob("*.ckpt*.index"))
    return max(checkpoints, key=lambda path: int((re.findall(r"-(\d+)$", path.name) or [0])[0]), default=None)


def variables(checkpoint: Path) -> tuple[dict[str, tuple[int, ...]], dict[str, Callable[[], np.ndarray]]]:
    """Return the shape of each parameter, and a function that reads it, both by today's published names."""
    from bert_jax.text.host_tensorflow import tf

    # TensorFlow turns some of its own errors into Python's.
    unreadable = (tf.errors.OpError, ValueError, RuntimeError, IndexError)
    try:
        reader = tf.train.load_checkpoint(str(checkpoint))
        shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    except unreadable as error:
        raise BertJaxError(
            f"{checkpoint}.index cannot be read ({first_line(error)}); copy all files of the checkpoint again"
        ) from error
    kept = [name for name in shapes if not TRAINING.search(name)]

    def read(name: str) -> np.ndarray:
        try:
            array = reader.get_tensor(name)
        except unreadable as error:
            raise BertJaxError(
                f"{checkpoint}: {name} cannot be read ({first_line(error)}); copy all files of the checkpoint again"
            ) from error
        return array.T if name.endswith("/kernel") else array

    turned = {name: shapes[name][::-1] if name.endswith("/kernel") else shapes[name] for name in kept}
    return (
        {hf_tensor_name(name): shape for name, shape in turned.items()},
        {hf_tensor_name(name): partial(read, name) for name in kept},
    )


def hf_tensor_name(name: str) -> str:
    """Convert the name of a variable to the published name.

    >>> hf_tensor_name("bert/encoder/layer_3/attention/output/LayerNorm/gamma")
    'bert.encoder.layer.3.attention.output.LayerNorm.weight'
    >>> hf_tensor_name("cls/seq_relationship/output_weights")
    'cls.seq_relationship.weight'
    """
    for old, new in RENAMED:
        name = re.sub(old, new, name)
    return name
