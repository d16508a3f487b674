"""Fetch files, a folder or a glob of a Hugging Face data set, `hf://datasets/OWNER/NAME[@REVISION]/FILES`."""

import os
import re
from urllib.parse import unquote

from bert_jax.core.errors import BertJaxError, first_line

HUB_PREFIX = "hf://"
NAME = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)")


def fetch(given: str) -> str:
    """Fetch the files and return the path of the local copy; the revision ~parquet is the hub's own copy in parquet."""
    match = NAME.fullmatch(given)
    if not match:
        raise BertJaxError(
            f"{given} is not hf://datasets/OWNER/NAME/FILES; name a file, a folder or a glob of the data set"
        )
    repository, revision, files = match[1], unquote(match[2] or "main"), match[3].rstrip("/")
    if revision.startswith("~"):
        revision = f"refs/convert/{revision[1:]}"
    try:
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            repository, repo_type="dataset", revision=revision, allow_patterns=[files, f"{files}/*"]
        )
    except Exception as error:  # offline, unknown, forbidden: a dozen types of three libraries
        raise BertJaxError(
            f"{given} cannot be fetched from the Hugging Face hub ({type(error).__name__}: {first_line(error)}); check "
            "its name and the network, or fetch the files and name them"
        ) from error
    return os.path.join(folder, files)
