"""The local directory of a model, which is fetched from the Hugging Face hub if it is a name there."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from bert_jax.core.errors import BertJaxError, first_line


def resolve_directory(directory) -> Path:
    """Return the directory itself, or the local copy of a model on the Hugging Face hub."""
    path = check_path(directory)
    if os.path.isdir(path):  # unlike Path.is_dir, which may raise if a name is too long
        return path
    if os.path.exists(path) or re.match(r"^[./~]|.*/.*/", str(directory)):
        raise BertJaxError(
            f"{directory} is not a directory; name one that holds config.json and model.safetensors"
        )
    by_hand = f"`hf download {directory} --local-dir DIR`"
    try:
        from huggingface_hub import snapshot_download

        return download(snapshot_download, str(directory))
    except Exception as error:  # offline, unknown, forbidden: a dozen types from three libraries
        raise BertJaxError(
            f'no directory "{directory}" here, and no model from the Hugging Face hub ({type(error).__name__}: '
            f"{first_line(error)}); run {by_hand} where there is a network"
        ) from error


def download(snapshot: Callable, name: str) -> Path:
    """Fetch the files of a model: safetensors, or pickled weights if it has none, and no folders of other formats."""

    def fetched(weights: str) -> Path:
        # The folders of sentence-transformers' modules, such as 1_Pooling, begin with a digit, and those of a Router
        # with document or query. A Dense in one of them may be pickled even if the encoder is not.
        wanted = ["*.json", "*.txt", "*.model", weights, "[0-9]*/*.bin"]
        return Path(snapshot(name, allow_patterns=wanted, ignore_patterns=["[!0-9dq]*/*"]))

    directory = fetched("*.safetensors")
    return directory if any(directory.rglob("*.safetensors")) else fetched("*.bin")


def check_path(directory) -> Path:
    if not isinstance(directory, str | os.PathLike) or not str(directory):
        raise BertJaxError(f"expected the path of a model directory, not {directory!r:.60}")
    return Path(directory)
