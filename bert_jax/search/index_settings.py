"""The settings to build an index with: those that the user gives, or those of the existing index."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.search import index_manifest as manifests
from bert_jax.search.approximate import library
from bert_jax.search.index_encoder import Encoder, encoder_of
from bert_jax.search.index_manifest import FILE, Manifest
from bert_jax.search.passages import Cutter, Words

TOKENS = 256  # of a passage by default, or fewer if the model reads fewer
MOST = 8192  # the most tokens of a passage
SHARE = 8  # by default, one in SHARE of a passage's tokens may be repeated in the next
CHANGEABLE = ("quantization", "approximate")  # by --compact


@dataclass(frozen=True)
class Asked:
    """The settings that the user gave; None if not given."""

    model: str | None = None
    passage_tokens: int | None = None
    overlap: int | None = None
    quantization: str | None = None
    approximate: str | None = None


class Plan:
    """The settings of an index, and its model, which is loaded only when it is needed."""

    def __init__(self, path: Path, asked: Asked, merging: bool = False):
        self.path, self.asked = path, asked
        if asked.model and path.resolve().is_relative_to(hub.existing(asked.model).resolve()):
            raise BertJaxError(f"{path} is in the model's directory; name one elsewhere")
        before = manifests.read(path) if (path / FILE).exists() else None
        if before is not None and not before.changes:  # nothing was built with its settings
            if before.model and not asked.model:
                self.asked = replace(asked, model=before.model.path)
            before = None
        self.is_new = before is None
        self.manifest = self.fresh() if before is None else self.unchanged(before, merging)

    @cached_property
    def encoder(self) -> Encoder | None:
        if self.is_new:
            return Encoder(self.asked.model) if self.asked.model else None
        model = self.manifest.model
        return encoder_of(self.path, model, self.asked.model) if model else None

    @property
    def cutter(self) -> Cutter:
        tokens, encoder = self.manifest.passage_tokens, self.encoder
        if encoder is None:
            return Cutter(Words(), tokens, self.manifest.overlap)
        return Cutter(encoder.ruler, encoder.room(tokens), self.manifest.overlap)

    def fresh(self) -> Manifest:
        asked, model = self.asked, self.encoder.facts if self.encoder else None
        most = model.max_length if model else MOST
        tokens = asked.passage_tokens or min(TOKENS, most)
        check_number(tokens, "--passage-tokens", is_whole=True, allowed=Range(1, min(most, MOST)))
        overlap = tokens // SHARE if asked.overlap is None else asked.overlap
        check_number(overlap, "--overlap", is_whole=True, allowed=Range(0, tokens // 2))
        if model is None and (asked.quantization or asked.approximate):
            raise BertJaxError("--quantize and --approximate apply to vectors; add --model DIR")
        return checked(Manifest(model, tokens, overlap, none(asked.quantization), none(asked.approximate)))

    def unchanged(self, before: Manifest, merging: bool) -> Manifest:
        """Return the settings of the index, with the changes that merging allows. Raise if others were given."""
        if self.asked.model and not before.model:
            raise BertJaxError(
                f"{self.path} was built without a model; leave --model out, or name a new index"
            )
        for name in ("passage_tokens", "overlap", *CHANGEABLE):
            value = getattr(self.asked, name)
            if value is None or none(value) == getattr(before, name):
                continue
            if name not in CHANGEABLE:
                flag = f"--{name.replace('_', '-')}"
                raise BertJaxError(
                    f"{self.path} was built with {flag} {getattr(before, name)}, not {value}; name a new index"
                )
            if not merging:
                raise BertJaxError(
                    f"{self.path} was built with {name} {getattr(before, name) or 'none'}, not {value}; add "
                    "--compact to this command to change that"
                )
        changed: dict[str, Any] = {
            name: none(value) for name in CHANGEABLE if (value := getattr(self.asked, name)) is not None
        }
        return checked(replace(before, **changed))


def checked(manifest: Manifest) -> Manifest:
    if manifest.quantization and manifest.approximate:
        raise BertJaxError("--quantize and --approximate both find candidates; set one of them to none")
    if manifest.approximate:
        library()  # raises if faiss is missing, before anything is built
    return manifest


def none(value: str | None) -> str | None:
    return None if value == "none" else value
