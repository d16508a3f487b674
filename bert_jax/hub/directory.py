"""A Hugging Face model directory, opened and saved.

`survey` reads what a directory says of itself without reading its weights; `read_params` reads them; `save` writes
a directory that `transformers` opens with the same outputs.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import save_file

from bert_jax.errors import BertJaxError, first_line, nearest
from bert_jax.files import read_json, replacing
from bert_jax.hub.families import (
    FAMILIES,
    Family,
    Part,
    family_of,
    head_names,
    parts,
    read_config,
    write_config,
)
from bert_jax.hub.tensors import Tensors
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import dummy_batch
from bert_jax.models.heads import HEADS, Bert

CONFIGS = ("config.json", "bert_config.json")  # the second is the name the first published models used
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
# Buffers, and copies of tied parameters, which other tools may write beside the parameters themselves.
COPIES = re.compile(
    r"embeddings\.(position_ids|token_type_ids)$|^(cls\.predictions|lm_head)\.decoder\.(weight|bias)$"
)


@dataclass(frozen=True)
class Layout:
    """What a model is made of, and how its family publishes it."""

    config: EncoderConfig
    family: Family = FAMILIES["bert"]
    heads: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    pooler: bool = True
    published: dict = field(default_factory=dict)  # the config.json it came with; unknown keys survive a save

    def __post_init__(self):
        if self.config.block != self.family.block:  # whoever opened it would compute something else
            raise BertJaxError(
                f'models of the family "{self.family.model_type}" have blocks "{self.family.block}", '
                f'not "{self.config.block}"'
            )

    @property
    def module(self) -> Bert:
        return Bert(self.config, self.heads, len(self.labels), self.pooler)

    @property
    def module_names(self) -> tuple[str, ...]:
        return ("encoder", *(["pooler"] if self.pooler else []), *self.heads)

    def init(self, key, modules: Iterable[str] | None = None) -> dict:
        """Initial values of the whole model, or of the named modules alone."""
        params = self.module.init(key, dummy_batch())["params"]
        return {name: params[name] for name in (self.module_names if modules is None else modules)}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter's path and shape."""
        params = jax.eval_shape(self.init, jax.random.key(0))
        return {path: leaf.shape for path, leaf in flatten_dict(params, sep="/").items()}

    def parts(self, prefixed: bool) -> list[Part]:
        return parts(self.config, self.family, self.heads, self.pooler, prefixed)


def survey(directory, **computed) -> tuple[Layout, Tensors]:
    """The layout a directory describes, and its tensors under today's names, not read yet."""
    directory = existing(directory)
    published, where = read_published(directory)
    family = family_of(published, where)
    config = read_config(published, family, where, **computed)
    tensors = Tensors.in_directory(directory).renamed(todays_name)
    prefixed = is_prefixed(tensors, family)
    suffix = architecture(published, family, where)
    heads = heads_in(tensors, suffix, family, config, prefixed)
    labels = labels_in(published, where) if any(head in ("classify", "tag") for head in heads) else ()
    pooler = f"{family.prefix}." * prefixed + "pooler.dense.weight" in tensors or any(
        HEADS[h].pooled for h in heads
    )
    return Layout(config, family, heads, labels, pooler, published), tensors


def existing(directory) -> Path:
    path = Path(directory)
    if path.is_dir():
        return path
    if path.exists() or re.match(r"^[./~]|.*/.*/", str(directory)):
        raise BertJaxError(
            f"{directory} is no directory; name one that holds config.json and model.safetensors"
        )
    try:
        import huggingface_hub
    except ImportError:
        raise BertJaxError(
            f'no directory "{directory}" here; if it is a name on the Hugging Face hub, `pip install huggingface_hub` '
            f"and call again, or download it yourself with `hf download {directory} --local-dir DIR` and name DIR"
        ) from None
    try:
        wanted = ["*.json", "*.txt", "*.safetensors", "*.bin", "*.model", "*/config.json"]
        return Path(huggingface_hub.snapshot_download(str(directory), allow_patterns=wanted))
    except (
        Exception
    ) as error:  # offline, unknown and forbidden names come as a dozen types of three libraries
        raise BertJaxError(
            f'no directory "{directory}" here, and the Hugging Face hub did not give it ({type(error).__name__}: '
            f"{first_line(error)}); download it where there is a network with `hf download {directory} --local-dir DIR`"
        ) from error


def read_published(directory: Path) -> tuple[dict, Path]:
    path = next((directory / name for name in CONFIGS if (directory / name).is_file()), None)
    if path is None:
        inside = directory / "model"
        where = (
            f"the model of that run is {inside}"
            if (inside / CONFIGS[0]).is_file()
            else "it is no model directory"
        )
        raise BertJaxError(f"{directory} has no config.json; {where}")
    return read_json(path), path


def todays_name(name: str) -> str:
    for old, new in OLD_NAMES.items():
        name = name.replace(old, new)
    return name.removeprefix("module.")  # left by torch's DataParallel


def is_prefixed(tensors: Mapping, family: Family) -> bool:
    return any(name.startswith(f"{family.prefix}.") for name in tensors)


def architecture(published: dict, family: Family, where) -> str:
    """What follows the family's name in the class that saved the model: "ForMaskedLM", "Model" or ""."""
    named = published.get("architectures") or [""]
    suffix = str(named[0]).removeprefix(family.class_name)
    known = {"", "Model", "ForPreTraining", *(head.architecture for head in HEADS.values())}
    if suffix not in known:
        raise BertJaxError(
            f"{where}: the architecture {named[0]} has a head that is not supported; {nearest(suffix, known)}"
        )
    return suffix


def heads_in(
    tensors: Mapping, suffix: str, family: Family, config: EncoderConfig, prefixed: bool
) -> tuple[str, ...]:
    """The heads a directory holds: the one its architecture names, and all others whose tensors are there in full."""
    found = {head for head in HEADS if HEADS[head].architecture == suffix}
    if suffix == "ForPreTraining":
        found |= {"mlm", "nsp"}
    for head in HEADS:
        names = set(head_names(head, family, config).values())
        taken = {name for other in found for name in head_names(other, family, config).values()}
        # Classifiers of sequences and of tokens share their names; without an architecture the pooler tells them apart.
        fits = (
            head != "classify"
            or f"{family.prefix}." * prefixed + "pooler.dense.weight" in tensors
            or family.prefix == "roberta"
        )
        if names and names <= set(tensors) and not names & taken and fits:
            found.add(head)
    return tuple(head for head in HEADS if head in found)


def labels_in(published: dict, where) -> tuple[str, ...]:
    named = published.get("id2label")
    if named is None:
        return tuple(f"LABEL_{i}" for i in range(published.get("num_labels", 2)))
    try:
        ordered = {int(i): str(label) for i, label in named.items()}
        return tuple(ordered[i] for i in range(len(ordered)))
    except (AttributeError, ValueError, KeyError):
        raise BertJaxError(
            f"{where}: id2label does not number the labels 0, 1, 2 ...: {str(named)[:80]}"
        ) from None


def fresh_parts(layout: Layout, tensors: Tensors, where, new_head: str | None = None) -> set[str]:
    """Raises unless the tensors are what the layout asks for, name by name and shape by shape.

    Returns the parameters that are not to be read: those of the new head, and of a pooler that it is the first to need.
    """
    check_layers(layout, tensors, where)
    prefixed = is_prefixed(tensors, layout.family)
    shapes = layout.shapes()
    expected: dict[str, tuple[int, ...]] = {}
    fresh = set()
    for part in layout.parts(prefixed):
        names = part.published(layout.config.layers)
        of = part.ours.split("/")[0]
        if new_head and (of == new_head or (of == "pooler" and not set(names) <= set(tensors))):
            fresh.add(part.ours)
        else:
            each = part.shapes(shapes[part.ours])
            expected |= {name: each[i % len(each)] for i, name in enumerate(names)}
    known = set(expected) | (all_head_names(layout, prefixed) if new_head else set())
    problems = {
        "missing": [name for name in expected if name not in tensors],
        "left over": [
            name
            for name in tensors
            if name not in known and not COPIES.search(name) and not unused_pooler(name, layout)
        ],
        "of the wrong shape": [
            f"{name} is {list(tensors.shapes[name])} where the config asks for {list(shape)}"
            for name, shape in expected.items()
            if tensors.shapes.get(name, shape) != shape
        ],
    }
    if any(problems.values()):
        said = "; ".join(f"{kind}: {shortened(names)}" for kind, names in problems.items() if names)
        raise BertJaxError(f"the weights in {where} do not fit its config; {said}")
    return fresh


def read_params(layout: Layout, tensors: Tensors, where, new_head: str | None = None) -> dict:
    """The parameters, as nested dicts of float32 arrays, without those of a new head."""
    fresh = fresh_parts(layout, tensors, where, new_head)
    flat = {}
    for part in layout.parts(is_prefixed(tensors, layout.family)):
        if part.ours not in fresh:
            names = part.published(layout.config.layers)
            flat[part.ours] = part.read([np.asarray(tensors[name], np.float32) for name in names])
    return unflatten_dict(flat, sep="/")


def check_layers(layout: Layout, tensors: Mapping, where) -> None:
    """Before any list as long as the config's claim is made."""
    found = {int(match[1]) for name in tensors if (match := re.search(r"encoder\.layer\.(\d{1,6})\.", name))}
    if len(found) != layout.config.layers:
        raise BertJaxError(
            f"{where}: the config says {layout.config.layers} layers, the weights hold {len(found)}"
        )


def all_head_names(layout: Layout, prefixed: bool) -> set[str]:
    names = {name for head in HEADS for name in head_names(head, layout.family, layout.config).values()}
    base = f"{layout.family.prefix}." * prefixed
    dense = (f"{base}pooler.dense", "classifier.dense", "cls.seq_relationship", "classifier")
    return names | {f"{name}.{kind}" for name in dense for kind in ("weight", "bias")}


def unused_pooler(name: str, layout: Layout) -> bool:
    # A RoBERTa classifier pools with its own layer; a file may still carry the encoder's.
    return layout.family.prefix == "roberta" and "classify" in layout.heads and "pooler.dense." in name


def shortened(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def with_head(layout: Layout, head: str, labels: tuple[str, ...]) -> Layout:
    """The same encoder under a head of one's own."""
    if head not in HEADS:
        raise BertJaxError(f'no head "{head}"; {nearest(head, HEADS)}')
    if head in ("classify", "tag") and not labels:
        raise BertJaxError(f'the head "{head}" needs labels, such as labels=["negative", "positive"]')
    if not getattr(HEADS[head], layout.family.head_names):
        raise BertJaxError(f'{layout.family.class_name} has no head "{head}"')
    published = {
        k: v for k, v in layout.published.items() if k not in ("id2label", "label2id", "problem_type")
    }
    pooler = HEADS[head].pooled
    return replace(layout, heads=(head,), labels=tuple(labels), pooler=pooler, published=published)


def published_tensors(layout: Layout, params: Mapping) -> dict[str, np.ndarray]:
    """The parameters under their published names and shapes."""
    flat = flatten_dict(params, sep="/")
    tensors: dict[str, np.ndarray] = {}
    for part in layout.parts(prefixed=bool(layout.heads)):
        arrays = part.write(np.asarray(flat[part.ours], np.float32))
        tensors |= zip(part.published(layout.config.layers), map(np.ascontiguousarray, arrays), strict=True)
    return tensors


def published_config(layout: Layout, special=None) -> dict:
    """config.json's content; `special` are the tokenizer's ids."""
    heads = layout.heads
    named = {"mlm", "nsp"} <= set(heads)
    suffix = "ForPreTraining" if named else HEADS[heads[-1]].architecture if heads else "Model"
    published = write_config(layout.config, layout.family, layout.published)
    published["architectures"] = [layout.family.class_name + suffix]
    if layout.labels:
        published["id2label"] = {str(i): label for i, label in enumerate(layout.labels)}
        published["label2id"] = {label: i for i, label in enumerate(layout.labels)}
    if layout.family.position_offset:
        published["pad_token_id"] = layout.family.position_offset - 1
    elif special is not None:
        published["pad_token_id"] = special.pad
    return published


def save(directory, layout: Layout, params: Mapping, tokenizer=None) -> None:
    """Writes the directory; a file that was there before stays whole until its successor is."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with replacing(directory / "model.safetensors") as path:
        save_file(published_tensors(layout, params), path, metadata={"format": "pt"})
    with replacing(directory / "config.json") as path:
        special = tokenizer.special if tokenizer else None
        text = json.dumps(published_config(layout, special), indent=2, sort_keys=True, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
    if tokenizer is not None:
        tokenizer.save(directory)
