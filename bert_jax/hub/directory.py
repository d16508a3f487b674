"""A Hugging Face model directory, opened and saved.

`survey` reads what a directory says of itself without reading its weights; `read_params` reads them; `save` writes
a directory that `transformers` opens with the same outputs.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from flax.traverse_util import unflatten_dict
from safetensors import SafetensorError
from safetensors.numpy import save_file

from bert_jax import hashes, memory
from bert_jax.errors import BertJaxError, first_line, nearest, of_rust
from bert_jax.files import read_json, write_atomically, write_json
from bert_jax.hub import sentence_transformers
from bert_jax.hub.families import family_of
from bert_jax.hub.family import Family, size_of
from bert_jax.hub.layout import Layout
from bert_jax.hub.parts import Part
from bert_jax.hub.sentence_transformers import PROJECTION
from bert_jax.hub.tensors import Tensors
from bert_jax.hub.weights import check_weights, read_weight
from bert_jax.models.heads import HEADS
from bert_jax.output import building, replacing

BESIDE = ("pooler", "transform")  # between the encoder and the heads
MOST_LABELS = 1 << 20
CONFIGS = ("config.json", "bert_config.json")  # the second is the name the first published models used
# All that is ever written into a model directory, by name.
FILES = {
    "config.json", "model.safetensors", "calibration.json", "origin.json", "scope.safetensors", "hashes.json",
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "modules.json", "sentence_bert_config.json",
    "config_sentence_transformers.json", "README.md",
}  # fmt: skip
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


class Published(TypedDict, total=False):
    """Keys of a config.json that every family has; those of its sizes are checked where they are read."""

    model_type: str | None
    architectures: list[str] | None
    id2label: dict[str, Any] | None
    num_labels: int | None
    pad_token_id: int | None
    problem_type: str | None
    prediction_kind: str | None
    may_be_missing: bool | None


def survey(directory, **computed) -> tuple[Layout, Tensors]:
    """The layout a directory describes, and its tensors under today's names, not read yet."""
    directory = existing(directory)
    published, where = read_published(directory)
    family = family_of(published, where)
    published = family.todays_keys(published, where)
    config = family.read_config(published, where, **computed)
    tensors = family.todays_tensors(Tensors.in_directory(directory).renamed(todays_name))
    config = family.seen(config, tensors)
    heads = heads_in(tensors, read_architecture(published, family, where), Layout(config, family))
    labels = labels_in(published, where) if any(HEADS[head].labels for head in heads) else ()
    pooler = any(HEADS[head].pooler for head in heads)
    pooler |= not family.pooler_names(is_prefixed(tensors, family)).isdisjoint(tensors)
    embedder = sentence_transformers.read(directory)
    folder = sentence_transformers.projection_folder(directory)
    if folder and embedder and embedder.projection:
        tensors = tensors.beside(Tensors.in_directory(folder).renamed(lambda name: (f"{PROJECTION}.{name}",)))
    if sentence_transformers.is_cross_encoder(directory):
        published = sentence_transformers.CROSS_ENCODER | published
    return Layout(config, family, heads, labels, pooler, published, embedder), tensors


def existing(directory) -> Path:
    """The directory itself, or the local copy of a model on the Hugging Face hub."""
    path = as_path(directory)
    if os.path.isdir(path):  # which knows no name too long to ask about
        return path
    if os.path.exists(path) or re.match(r"^[./~]|.*/.*/", str(directory)):
        raise BertJaxError(
            f"{directory} is not a directory; name one that holds config.json and model.safetensors"
        )
    by_hand = f"`hf download {directory} --local-dir DIR`"
    try:
        import huggingface_hub
    except ImportError:
        raise BertJaxError(
            f'no directory "{directory}" here; if it is a name on the Hugging Face hub, '
            f"`pip install huggingface_hub` and try again, or run {by_hand} and name DIR"
        ) from None
    try:
        return download(huggingface_hub.snapshot_download, str(directory))
    except Exception as error:  # offline, unknown, forbidden: a dozen types of three libraries
        raise BertJaxError(
            f'no directory "{directory}" here, and no model from the Hugging Face hub ({type(error).__name__}: '
            f"{first_line(error)}); run {by_hand} where there is a network"
        ) from error


def download(snapshot: Callable, name: str) -> Path:
    """Fetch the files of a model: safetensors, or pickled weights if it has none, and no folders of other formats."""

    def fetched(weights: str) -> Path:
        # The folders of sentence-transformers' modules, such as 1_Pooling, begin with a digit. A Dense there may be
        # pickled beside an encoder that is not.
        wanted = ["*.json", "*.txt", "*.model", weights, "[0-9]*/*.bin"]
        return Path(snapshot(name, allow_patterns=wanted, ignore_patterns=["[!0-9]*/*"]))

    directory = fetched("*.safetensors")
    return directory if any(directory.glob("*.safetensors")) else fetched("*.bin")


def as_path(directory) -> Path:
    if not isinstance(directory, str | os.PathLike) or not str(directory):
        raise BertJaxError(f"a path is needed, of a directory that holds a model, not {directory!r:.60}")
    return Path(directory)


def read_published(directory: Path) -> tuple[dict, Path]:
    for path in map(directory.joinpath, CONFIGS):
        if path.is_file():
            return read_json(path, Published), path
    of_run = directory / "model"
    where = "it is not a model directory"
    if (of_run / CONFIGS[0]).is_file():
        where = f"the model of that run is {of_run}"
    raise BertJaxError(f"{directory} has no config.json; {where}")


def todays_name(name: str) -> tuple[str]:
    for old, new in OLD_NAMES.items():
        name = name.replace(old, new)
    return (name.removeprefix("module."),)  # left by torch's DataParallel


def is_prefixed(tensors: Mapping, family: Family) -> bool:
    return any(name.startswith(f"{family.prefix}.") for name in tensors)


def read_architecture(published: dict, family: Family, where) -> str:
    """What follows the family's name in the class that saved the model: "ForMaskedLM", "Model" or ""."""
    named = published.get("architectures") or [""]
    suffix = str(named[0]).removeprefix(family.class_name)
    of_heads = (HEADS[head].architecture for head in HEADS if head in family.heads)
    known = {"", "Model", *family.architectures, *of_heads}
    if suffix not in known:
        raise BertJaxError(
            f"{where}: the architecture {named[0]} has a head that is not supported; "
            f"{nearest(suffix, sorted(known - {''}))}"
        )
    return suffix


def heads_in(tensors: Mapping, architecture: str, layout: Layout) -> tuple[str, ...]:
    """The heads a directory holds: the one its architecture names, and all others whose tensors are there in full."""
    family = layout.family
    names = {
        head: {name for part in family.head_parts(head, layout.config) for name in part.theirs}
        for head in HEADS
        if head in family.heads
    }
    present = set(family.architectures.get(architecture, ()))
    present |= {head for head in names if HEADS[head].architecture == architecture}
    if not is_prefixed(tensors, family):
        # An embedder keeps the architecture of the model that it was made from.
        present = {head for head in present if not names[head].isdisjoint(tensors)}
    for head in names:
        # Classifiers of sequences and of tokens share their names; without an architecture the pooler tells them apart.
        pooler = set[str]()
        if HEADS[head].pooler and not family.has_own_pooler(head):
            pooler = family.pooler_names(is_prefixed(tensors, family))
        taken = set[str]().union(*(names[other] for other in present))
        if names[head] and names[head] | pooler <= set(tensors) and not names[head] & taken:
            present.add(head)
    return tuple(head for head in names if head in present)


def labels_in(published: dict, where) -> tuple[str, ...]:
    named = published.get("id2label")
    if named is None:
        count = size_of(published, "num_labels", 2, where)
        if count > MOST_LABELS:
            raise BertJaxError(
                f"{where}: num_labels = {count} is more than the {MOST_LABELS:,} that are read"
            )
        return tuple(f"LABEL_{i}" for i in range(count))
    try:
        ordered = {int(i): str(label) for i, label in named.items()}
        return tuple(ordered[i] for i in range(len(ordered)))
    except (AttributeError, ValueError, KeyError):
        raise BertJaxError(
            f"{where}: id2label does not number the labels 0, 1, 2 ...: {str(named)[:80]}"
        ) from None


def check_tensors(layout: Layout, tensors: Tensors, where, new_head: str | None = None) -> set[str]:
    """Raise unless the tensors are what the layout asks for, name by name and shape by shape.

    Return the parameters that are not read: those of the new head, and of a pooler that it is the first to need.
    """
    family, config = layout.family, layout.config
    # Before any list as long as the config's claim is made.
    if (layers := family.layers_in(tensors, config)) != config.groups:
        raise BertJaxError(f"{where}: the config says {config.groups} layers, the weights hold {layers}")
    prefixed = is_prefixed(tensors, family)
    shapes = layout.shapes()
    expected: dict[str, tuple[int, ...]] = {}
    fresh = set()
    for part in layout.parts(prefixed):
        names = part.published(config.groups)
        module = part.ours.split("/")[0]
        if new_head and (module == new_head or (module in BESIDE and not set(names) <= set(tensors))):
            fresh.add(part.ours)
        else:
            of_layer = part.shapes(shapes[part.ours])
            expected |= {name: of_layer[i % len(of_layer)] for i, name in enumerate(names)}
    known = set(expected) | family.pooler_names(prefixed)
    known |= {name for name in tensors if name.startswith(f"{PROJECTION}.")}  # with a head nothing reads it
    if new_head:
        known |= {name for parts in family.heads.values() for part in parts for name in part.theirs}
    problems = {
        "missing": [name for name in expected if name not in tensors],
        "left over": [name for name in tensors if name not in known and not family.is_extra(name)],
        "of the wrong shape": [
            f"{name} is {list(tensors.shapes[name])} where the config asks for {list(shape)}"
            for name, shape in expected.items()
            if tensors.shapes.get(name, shape) != shape
        ],
    }
    if any(problems.values()):
        listed = "; ".join(f"{kind}: {shortened(names, 2)}" for kind, names in problems.items() if names)
        raise BertJaxError(f"the weights in {where} do not fit its config; {listed}")
    return fresh


def left_aside(layout: Layout, tensors: Tensors) -> list[str]:
    """The tensors of a directory that no parameter is read from: copies, buffers, heads that are not known."""
    prefixed, groups = is_prefixed(tensors, layout.family), layout.config.groups
    read = {name for part in layout.parts(prefixed) for name in part.published(groups)}
    return sorted(name for name in tensors if name not in read)


def shortened(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def read_params(layout: Layout, tensors: Tensors, where, new_head: str | None = None) -> dict:
    """The parameters, as nested dicts of float32 arrays, without those of a new head."""
    fresh = check_tensors(layout, tensors, where, new_head)
    size = 4 * sum(map(math.prod, tensors.shapes.values()))
    memory.require(size, f"the model in {where}", "open it on a larger machine")
    flat = {}
    for part in layout.parts(is_prefixed(tensors, layout.family)):
        if part.ours not in fresh:
            names = part.published(layout.config.groups)
            flat[part.ours] = part.read([read_weight(tensors, name, where) for name in names])
    return unflatten_dict(flat, sep="/")


def read_beside(layout: Layout, tensors: Tensors, where) -> dict:
    """Of what stands between the encoder and a head, the parameters that a directory has, perhaps for another head."""
    parts = layout.parts(is_prefixed(tensors, layout.family))
    shapes, flat = layout.shapes(), {}
    for module in BESIDE:
        of_module = [part for part in parts if part.ours.startswith(f"{module}/")]
        if all(fits(part, shapes, tensors) for part in of_module):
            for part in of_module:
                flat[part.ours] = part.read([read_weight(tensors, name, where) for name in part.theirs])
    return unflatten_dict(flat, sep="/")


def fits(part: Part, shapes: Mapping, tensors: Tensors) -> bool:
    of_ours = part.shapes(shapes[part.ours])
    return [tensors.shapes.get(name) for name in part.theirs] == of_ours


@contextmanager
def saving(directory) -> Iterator[Path]:
    """A new directory for models and what belongs to them, which takes the place of an earlier one when it is whole.

    Each model in it gets the hashes of its files.
    """
    with building(Path(directory), FILES) as new:
        yield new
        models = [path.parent for path in new.rglob("model.safetensors")]
        # A projection is listed with the embedder that it belongs to.
        for model in sorted(
            path for path in models if sentence_transformers.projection_folder(path.parent) != path
        )[::-1]:
            hashes.write(model)


def save_tensors(directory: Path, tensors: dict) -> None:
    with replacing(directory / "model.safetensors") as path:
        try:
            save_file(tensors, path, metadata={"format": "pt"})
        except SafetensorError as error:  # a full disk, in the words of its library
            raise of_rust(error) from error


def save(directory, layout: Layout, params: Mapping, tokenizer=None) -> None:
    """Write the files of a model into a directory, those of sentence-transformers too if it is an embedder."""
    directory = Path(directory)
    if layout.embedder:  # first, because it may refuse
        sentence_transformers.write(directory, layout.embedder, layout.config.hidden_size)
    tensors = layout.published_tensors(params)
    check_weights(tensors)
    projection = {
        name.removeprefix(f"{PROJECTION}."): tensors.pop(name)
        for name in list(tensors)
        if name.startswith(f"{PROJECTION}.")
    }
    save_tensors(directory, tensors)
    if folder := sentence_transformers.projection_folder(directory):
        save_tensors(folder, projection)
    config = layout.published_config(tokenizer.special.pad if tokenizer else None)
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    write_atomically(directory / "config.json", text + "\n")
    if tokenizer is not None:
        tokenizer.save(directory)
        if not layout.config.segment_types:
            # Most classes of transformers refuse what the tokenizer would give them by default.
            file = directory / "tokenizer_config.json"
            write_json(file, read_json(file) | {"model_input_names": ["input_ids", "attention_mask"]})
