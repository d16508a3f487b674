"""The versions of what computes a shard, which are to be the same on all machines."""

import platform
import socket
from collections.abc import Mapping
from importlib import metadata

from bert_jax import __version__
from bert_jax.core.errors import BertJaxError

PACKAGES = ("jax", "jaxlib", "numpy", "onnxruntime", "tokenizers", "sentencepiece", "sentencex", "pyarrow")


def list_versions() -> dict[str, str]:
    versions = {"bert-jax": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "none"
    return versions


def check_versions(expected: Mapping[str, str]) -> None:
    """Refuse a machine whose versions are not those of the machine on which the command runs."""
    for name, version in list_versions().items():
        if version != expected[name]:
            raise BertJaxError(
                f"{socket.gethostname()} has {name} {version}, and the command runs with {expected[name]}; install the "
                "same versions on all machines"
            )
