"""Whether a text is like the training texts of a model, or out of its scope.

`scope.safetensors` in the model's directory holds the vectors of training texts, and how similar to them other known
texts are, on which the model was not trained. Probabilities say little about this: a classifier is confident about many
texts that belong to none of its classes.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bert_jax.core.errors import BertJaxError, first_line, recover_os_error
from bert_jax.core.output import atomic_file
from bert_jax.data.randomness import sample_indices

FILE = "scope.safetensors"
REMEDY = "delete it, or train again"
MOST = 2_000  # training texts whose vectors are kept, at most
NEAREST = 10  # training texts that a text's similarity is the mean over
FEWEST = 25  # known texts that a scope needs, at least
KEPT = 1_000  # similarities of known texts that are kept, at most
AT_ONCE = 1_000  # texts that are compared in one product
FORMS = {"vectors": ("F16", 2), "known": ("F32", 1)}  # type and axes of each tensor of the file


@dataclass(frozen=True, eq=False)
class OutOfScopeDetector:
    """The vectors of training texts, of length 1, and the similarities of known texts."""

    vectors: np.ndarray  # [M, D] of training texts
    known: np.ndarray  # [K], ascending: the similarities of texts that were not trained on

    @classmethod
    def from_vectors(
        cls, vectors: np.ndarray, similarities: np.ndarray | None = None
    ) -> "OutOfScopeDetector":
        known = np.sort(np.zeros(0) if similarities is None else similarities)
        if len(known) > KEPT:  # quantiles represent them
            known = known[((np.arange(KEPT) + 0.5) * len(known) / KEPT).astype(int)]
        return cls(vectors.astype(np.float16), known.astype(np.float32))

    @property
    def is_fitted(self) -> bool:
        return len(self.known) > 0

    def check_usable(self, share: float = 1.0) -> None:
        """Refuse a scope that is empty, or has too few known texts to call any text out of scope at this share."""
        if not self.is_fitted:
            raise BertJaxError(
                f"this model has no {FILE}, so it cannot tell which texts are out of scope; `bert-jax train` writes "
                f"one for labels, numbers and tags, if at least {FEWEST} texts are in folds or kept for validation"
            )

        if share <= (lowest := 1 / (1 + len(self.known))):
            raise BertJaxError(
                f"no text has an in-distribution p-value below {share:g}: with {len(self.known):,} validation texts "
                f"the lowest is {ceil(1e4 * lowest) / 1e4:g}; set a higher P, or train with more texts"
            )

    @cached_property
    def columns(self) -> np.ndarray:
        return np.ascontiguousarray(self.vectors.T, np.float32)

    def similarity(self, vectors: np.ndarray) -> np.ndarray:
        """Return the mean cosine [N] of each vector [N, D] with the nearest training texts."""
        nearest = min(NEAREST, len(self.vectors))
        means = [
            np.partition(vectors[i : i + AT_ONCE] @ self.columns, -nearest, axis=1)[:, -nearest:].mean(1)
            for i in range(0, len(vectors), AT_ONCE)
        ]
        return np.concatenate([np.zeros(0, np.float32), *means])

    def p_value(self, similarities):
        """Return the share of known texts that are at most as similar to the training texts, as a p-value.

        The text itself counts as known, so the share is never 0. At most a share p of known texts gets p or less.

        >>> scope = OutOfScopeDetector.from_vectors(np.eye(2), np.array([0.5, 0.6, 0.7]))
        >>> scope.p_value(np.array([0.4, 0.6, 0.9])).tolist()
        [0.25, 0.75, 1.0]
        """
        return (1 + np.searchsorted(self.known, np.float32(similarities), "right")) / (1 + len(self.known))


NO_DETECTOR = OutOfScopeDetector(np.zeros((0, 0), np.float16), np.zeros(0, np.float32))


def draw_text_indices(count: int) -> np.ndarray:
    """Return the indices of at most MOST of `count` texts, drawn at random, but always the same ones."""
    return sample_indices("scope", count, MOST)


def save_detector(directory, scope: OutOfScopeDetector) -> None:
    if not scope.is_fitted:
        return
    with atomic_file(Path(directory) / FILE) as new:
        try:
            save_file({name: getattr(scope, name) for name in FORMS}, new)
        except SafetensorError as error:  # such as a full disk, reported by the Rust library
            raise recover_os_error(error) from error


def read_detector(directory, width: int) -> OutOfScopeDetector:
    """Read the scope of a model whose vectors have `width` numbers."""
    path = Path(directory) / FILE
    if not path.is_file():
        return NO_DETECTOR
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            forms = {name: (part.get_dtype(), len(part.get_shape())) for name, part in slices.items()}
            tensors = {name: file.get_tensor(name) for name in FORMS} if forms == FORMS else {}
    except (SafetensorError, OSError, ValueError) as error:
        raise BertJaxError(
            f"{path} is cut short or not a safetensors file ({first_line(error)}); {REMEDY}"
        ) from error
    if not tensors:
        wanted = " and ".join(f"{name} ({kind}, {axes} axes)" for name, (kind, axes) in FORMS.items())
        raise BertJaxError(f"{path} does not hold {wanted}; {REMEDY}")
    scope = OutOfScopeDetector(**tensors)
    if complaint := complaint_about(scope, width):
        raise BertJaxError(f"{path}: {complaint}; {REMEDY}")
    return scope


def complaint_about(scope: OutOfScopeDetector, width: int) -> str:
    if not scope.vectors.size or not scope.known.size:
        return "it is empty"
    if scope.vectors.shape[1] != width:
        return f"its vectors have {scope.vectors.shape[1]:,} numbers and those of the model {width:,}"
    if not (np.isfinite(scope.vectors).all() and np.isfinite(scope.known).all()):
        return "it holds numbers that are not finite"
    return "its similarities are not in order" if (np.diff(scope.known) < 0).any() else ""
