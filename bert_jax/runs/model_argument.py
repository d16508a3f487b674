"""A model as an argument of a public function: a directory, or a model that is loaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from bert_jax.core.paths import require_path
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.engine import open_directory

AnyModel = str | PathLike[str] | Encoder


@contextmanager
def open_model(name: str, model: AnyModel) -> Iterator[ModelDirectory]:
    """Open a model directory, or write a loaded model to a temporary one, which results call by the name of the
    argument."""
    if not isinstance(model, Encoder):
        yield ModelDirectory.open(model if isinstance(model, str) else require_path(model, name))
        return
    with TemporaryDirectory(prefix="bert-jax-") as folder:
        model.save(Path(folder) / "model")
        yield replace(open_directory(Path(folder) / "model", **model.computed), name=name)
