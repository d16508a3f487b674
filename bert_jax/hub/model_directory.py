"""A Hugging Face model directory, opened and saved.

`ModelDirectory.open` reads the configuration and the shapes of the tensors, but no weights and no tokenizer, which are
read when they are asked for; `save_model` writes a directory from which `transformers` computes the same outputs.
"""

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from bert_jax.core import hashes, memory
from bert_jax.core.errors import BertJaxError, recover_os_error
from bert_jax.core.files import read_json, write_atomically, write_json
from bert_jax.core.output import atomic_directory, atomic_file
from bert_jax.hub import adapter as adapters
from bert_jax.hub import m3_encoder, multi_vector_encoder, sentence_transformers, sparse_encoder
from bert_jax.hub.directory_heads import (
    heads_in,
    is_prefixed,
    named_heads,
    read_architecture,
    read_label_names,
)
from bert_jax.hub.families import find_family
from bert_jax.hub.hf_config import CONFIGS, read_hf_config
from bert_jax.hub.layout import Layout
from bert_jax.hub.local_directory import resolve_directory
from bert_jax.hub.modules_beside import folders_beside, open_beside, take_beside, write_text_settings
from bert_jax.hub.onnx_files import OnnxFile, read_source_fingerprint
from bert_jax.hub.parameter_mapping import ParameterMapping
from bert_jax.hub.published_form import MODELING_FILE, modeling_classes, to_hf_config, to_hf_tensors
from bert_jax.hub.sentence_transformers import PROJECTION
from bert_jax.hub.sparse_encoder import QUERY_WEIGHTS
from bert_jax.hub.tensors import Tensors
from bert_jax.hub.weights import check_weights, read_weight
from bert_jax.models.heads import HEADS
from bert_jax.text.input_files import HIDDEN
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.tokenizer_directory import holds_tokenizer

BESIDE = ("pooler", "transform")  # between the encoder and the heads
# The names of all files that a run writes into its model's directory.
WRITTEN_FILES = {
    "config.json", "model.safetensors", adapters.CONFIG, adapters.WEIGHTS,
    "calibration.json", "origin.json", "scope.safetensors", "hashes.json",
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "modules.json", "sentence_bert_config.json",
    "config_sentence_transformers.json", "router_config.json", "README.md", MODELING_FILE,
}  # fmt: skip
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


@dataclass(frozen=True, eq=False)
class ModelDirectory:
    """A model directory that is open. Its weights and its tokenizer are read when they are asked for.

    What takes the name of a model directory also takes this, as it is, and does not open it again.
    """

    name: str  # as the user wrote it
    path: Path
    layout: Layout
    tensors: Tensors  # under today's names, not read yet
    adapter: adapters.Adapter | None = None  # that it holds
    base: "ModelDirectory | None" = None  # the base model of the adapter
    engine: str = "jax"  # that computes the model
    batch_invariant: bool = False  # whether it computes texts so that they do not depend on each other
    onnx_file: OnnxFile | None = None  # that the engine opens, if the weights are in such a file

    @classmethod
    def open(cls, name, *, has_weights: bool = True, base=None, **computed) -> "ModelDirectory":
        """Open the directory of a model, or of an adapter on the model that it names, or on `base`.

        `has_weights=False`: one in which another file holds the weights, such as ONNX.
        """
        if isinstance(name, cls):
            return replace(name, layout=name.layout.computed_with(**computed)) if computed else name
        path = resolve_directory(name)
        adapter, source = adapters.open_adapter(path), None
        sparse, encoder = sparse_encoder.read_sparse(path), sparse_encoder.encoder_folder(path)
        if adapter:
            source = open_base(adapter, base, computed)
        elif base is not None:
            raise BertJaxError(f"{name} is not the directory of an adapter: {adapters.CONFIG} is not there")
        inherits = source and not (path / CONFIGS[0]).is_file()  # what the adapter's directory does not say
        if adapter and source and inherits:
            published, where = adapter.complete_config(source.layout), source.path
        else:
            published, where = read_hf_config(encoder)
        multi_vector = None if sparse else multi_vector_encoder.read_multi_vector(path, published)
        if is_stanford := multi_vector_encoder.is_stanford(published):
            published = {key: value for key, value in published.items() if key != "architectures"}
        family = find_family(published, where)
        published = family.modernize_config(published, where)
        config = family.read_config(published, where, **computed)
        architecture = read_architecture(published, family, where)
        if has_weights:
            if adapter and source:
                tensors = adapter.merge_into(source.tensors, source.layout, named_heads(architecture, family))
            else:
                folder = encoder if sparse else family.find_folder(path)
                tensors = Tensors.from_directory(folder).renamed(modernize_tensor_name)
                tensors = family.modernize_tensors(tensors)
                if is_stanford:
                    tensors = tensors.renamed(multi_vector_encoder.rename_stanford_tensor)
            config = family.complete_from_tensors(config, tensors)
            heads = heads_in(tensors, architecture, Layout(config, family))
        else:
            tensors, heads = Tensors({}, {}), named_heads(architecture, family)
        labels = read_label_names(published, where) if any(HEADS[head].labels for head in heads) else ()
        pooler = any(HEADS[head].pooler for head in heads)
        pooler |= not family.pooler_names(is_prefixed(tensors, family)).isdisjoint(tensors)
        embedder = None if sparse or multi_vector else sentence_transformers.read_embedder(path)
        if not heads:
            embedder = family.complete_embedder(embedder, published)
        if (multi_vector or embedder) and not has_weights:
            heads = ()  # an embedder may keep the name of its base model
        if sparse and "mlm" not in heads:
            raise BertJaxError(f"{encoder} has no masked language model, whose logits a sparse encoder pools")
        tensors = tensors.merge(open_beside(path, sparse or multi_vector or embedder, config.vocab_size))
        if multi_vector:
            multi_vector = multi_vector_encoder.complete_from_tensors(multi_vector, tensors.shapes)
        if sentence_transformers.is_cross_encoder(path):
            published = sentence_transformers.CROSS_ENCODER | published
        m3 = None
        if not (adapter or sparse or multi_vector or (heads and not embedder)):
            m3, layers = m3_encoder.open_m3(path, embedder, config.hidden_size)
            tensors = tensors.merge(layers)
        layout = Layout(config, family, heads, labels, pooler, published, embedder, sparse, multi_vector)
        layout = replace(layout, m3=m3).m3_with("embedder")
        if adapter and source and inherits and not (layout.text_settings or adapter.architecture):
            layout = layout.embedding_with(source.layout.text_settings)
        return cls(str(name), path, layout, tensors, adapter, source)

    def __str__(self) -> str:
        return self.name

    @cached_property
    def tokenizer(self) -> Tokenizer:
        if self.base and not holds_tokenizer(self.path):
            return self.base.tokenizer
        tokenizer = self.layout.family.open_tokenizer(sparse_encoder.encoder_folder(self.path))
        if self.layout.multi_vector:
            multi_vector_encoder.keep_markers_whole(tokenizer, self.layout.multi_vector)
        return tokenizer

    def read_params(self, layout: Layout | None = None, new_head: str | None = None) -> dict:
        """Read the parameters of a layout, by default its own, as nested dicts of float32 arrays; leave out those of a
        new head."""
        from flax.traverse_util import unflatten_dict

        memory.require_address_space()
        layout = layout or self.layout
        fresh = self.check_tensors(layout, new_head)
        size = 4 * sum(map(math.prod, self.tensors.shapes.values()))
        memory.require_free_memory(size, f"the model in {self.name}", "open it on a larger machine")
        parts, groups = self.mappings(layout), layout.config.groups
        flat = {part.path: self.read_parameter(part, groups) for part in parts if part.path not in fresh}
        return unflatten_dict(flat, sep="/")

    def read_head_params(self) -> dict:
        """Read the parameters beside those of the encoder."""
        from flax.traverse_util import unflatten_dict

        self.check_tensors(self.layout)
        parts = [part for part in self.mappings(self.layout) if not part.path.startswith("encoder/")]
        groups = self.layout.config.groups
        return unflatten_dict({part.path: self.read_parameter(part, groups) for part in parts}, sep="/")

    def mappings(self, layout: Layout) -> list[ParameterMapping]:
        return layout.parameter_mappings(is_prefixed(self.tensors, layout.family))

    def read_parameter(self, part: ParameterMapping, groups: int) -> np.ndarray:
        names = part.all_tensor_names(groups)
        return part.to_parameter([read_weight(self.tensors, name, self.name) for name in names])

    def read_pooler_and_transform(self, layout: Layout) -> dict:
        """Read the pooler and the transform of a layout, if the directory has them in the right shapes, even for
        another head."""
        from flax.traverse_util import unflatten_dict

        mappings, shapes, groups = self.mappings(layout), layout.shapes(), layout.config.groups
        flat: dict[str, np.ndarray] = {}
        for module in BESIDE:
            parts = [part for part in mappings if part.path.startswith(f"{module}/")]
            if all(matches_shapes(part, shapes, self.tensors) for part in parts):
                flat |= {part.path: self.read_parameter(part, groups) for part in parts}
        return unflatten_dict(flat, sep="/")

    @property
    def unread_tensors(self) -> list[str]:
        """The tensors that no parameter is read from: copies, buffers, unknown heads."""
        groups = self.layout.config.groups
        read = {name for part in self.mappings(self.layout) for name in part.all_tensor_names(groups)}
        return sorted(name for name in self.tensors if name not in read)

    def check_tensors(self, layout: Layout, new_head: str | None = None) -> set[str]:
        """Raise unless all tensors of the layout are there, in its shapes, and no unknown ones.

        Known ones may be left over: copies, buffers, a pooler, a projection and, with a new head, other heads. Return
        the parameters that are not read: those of the new head, and those of a pooler or transform that the directory
        lacks.
        """
        family, config, tensors = layout.family, layout.config, self.tensors
        # Check this before making lists as long as the config claims.
        if (layers := family.layers_in(tensors, config)) != config.groups:
            raise BertJaxError(
                f"{self.name}: the config says {config.groups} layers, the weights hold {layers}"
            )
        prefixed = is_prefixed(tensors, family)
        shapes = layout.shapes()
        expected: dict[str, tuple[int, ...]] = {}
        fresh = set()
        for part in layout.parameter_mappings(prefixed):
            names = part.all_tensor_names(config.groups)
            module = part.path.split("/")[0]
            if new_head and (module == new_head or (module in BESIDE and not set(names) <= set(tensors))):
                fresh.add(part.path)
            else:
                layer_shapes = part.tensor_shapes(shapes[part.path])
                expected |= {name: layer_shapes[i % len(layer_shapes)] for i, name in enumerate(names)}
        known = set(expected) | family.pooler_names(prefixed)
        # Unused if there is a head.
        beside = tuple(
            f"{name}." for name in (PROJECTION, QUERY_WEIGHTS, m3_encoder.COLBERT, m3_encoder.SPARSE)
        )
        known |= {name for name in tensors if name.startswith(beside)}
        if new_head:
            known |= {name for parts in family.heads.values() for part in parts for name in part.tensor_names}
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
            listed = "; ".join(
                f"{problem}: {abbreviate_names(names, 2)}" for problem, names in problems.items() if names
            )
            raise BertJaxError(f"the weights in {self.name} do not fit its config; {listed}")
        return fresh


def open_base(adapter: adapters.Adapter, base, computed: dict) -> ModelDirectory:
    """Open the base model of an adapter: the one that it names, or `base`."""
    name = adapter.base if base is None else base
    if os.path.realpath(str(name)) == os.path.realpath(adapter.path):
        raise BertJaxError(f"{adapter.path} is itself its base model; name the base that it was trained on")
    try:
        source = ModelDirectory.open(name, **computed)
    except BertJaxError as error:
        raise BertJaxError(
            f"{adapter.path} is an adapter, whose base model does not open: {error}"
        ) from error
    if source.base:
        raise BertJaxError(
            f"{adapter.path} is an adapter of {name}, which is an adapter, too; write the latter as a whole model: "
            f"bert-jax export {name} --format hf --output DIR"
        )
    return source


class ModelDirectories(dict[str, ModelDirectory]):
    """The model directories of a run by their names, each opened when it is first asked for."""

    def __missing__(self, name: str) -> ModelDirectory:
        self[name] = ModelDirectory.open(name)
        return self[name]

    def of_model(self, directory: str, model: str) -> ModelDirectory:
        """Return the directory of one of several models that a run saved: the main one, "", or one inside it."""
        return self[str(Path(directory) / model) if model else directory]


def model_fingerprint(directory) -> str:
    """Return a hash of the files of a model directory, except hidden ones, which belong to git and other programs.

    An exported model has that of the model that it was exported from, so that it searches the same indexes.
    """
    source = directory.path if isinstance(directory, ModelDirectory) else resolve_directory(directory)
    if exported := read_source_fingerprint(source):
        return exported
    names = sorted(name for name in hashes.list_file_names(source) if not HIDDEN.search(name))
    facts: dict[str, Any] = dict(hashes.collect_file_facts(source, names))
    if adapter := adapters.open_adapter(source):
        base = directory.base if isinstance(directory, ModelDirectory) else adapter.base
        facts |= {"base": model_fingerprint(base)}
    return hashes.json_digest(facts)


def modernize_tensor_name(name: str) -> tuple[str]:
    for old, new in OLD_NAMES.items():
        name = name.replace(old, new)
    return (name.removeprefix("module."),)  # left by torch's DataParallel


def abbreviate_names(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def matches_shapes(part: ParameterMapping, shapes: Mapping, tensors: Tensors) -> bool:
    expected = part.tensor_shapes(shapes[part.path])
    return [tensors.shapes.get(name) for name in part.tensor_names] == expected


@contextmanager
def atomic_model_directory(directory, replaces: Collection[str] = ()) -> Iterator[Path]:
    """Yield a new directory for models and their files, see `atomic_directory`.

    Each model in it gets a file with the hashes of its files.
    """
    with atomic_directory(Path(directory), replaces) as new:
        yield new
        models = {path.parent for path in new.rglob("*model.safetensors")}
        # The files of the modules beside an encoder are hashed with its own.
        for model in sorted(models.difference(*(folders_beside(path).values() for path in models)))[::-1]:
            hashes.write_hashes(model)


def save_tensors(directory: Path, tensors: dict, name: str = "model.safetensors") -> None:
    with atomic_file(directory / name) as path:
        try:
            save_file(tensors, path, metadata={"format": "pt"})
        except SafetensorError as error:  # such as a full disk, in the library's words
            raise recover_os_error(error) from error


def save_model(
    directory,
    layout: Layout,
    params: Mapping,
    tokenizer=None,
    encoder_weights: bool = True,
    adapter: adapters.TrainedAdapter | None = None,
) -> None:
    """Write the files of a model into a directory; for an embedder, those of sentence-transformers, too.

    Without `encoder_weights`, model.safetensors is left out: another program's file holds the weights. With an
    adapter, its files take that place, and `params` are those of the model with the adapter in it.
    """
    directory = Path(directory)
    layout = layout.m3_with("embedder")  # whichever of its vectors are in use, the files are the same
    if layout.m3 and not encoder_weights:
        layout = layout.embedding_with(layout.embedder)  # that file computes the dense vectors alone
    write_text_settings(directory, layout, tokenizer)  # first, because it may refuse
    tensors = to_hf_tensors(layout, params)
    check_weights(tensors)
    if layout.m3:
        m3_encoder.write_linear_layers(directory, tensors)
    beside = take_beside(tensors, directory, tokenizer.size if tokenizer else None)
    if adapter:
        own = adapter.to_tensors(layout, tensors)
        check_weights(own)
        save_tensors(directory, own, adapters.WEIGHTS)
        adapter.write_config(directory, layout)
    elif encoder_weights:
        save_tensors(directory, tensors)
    for folder, of_module in beside.items():
        save_tensors(folder, of_module)
    config = to_hf_config(layout, tokenizer.special.pad if tokenizer else None)
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    write_atomically(directory / "config.json", text + "\n")
    if modeling_classes(layout):
        source = Path(__file__).with_name(MODELING_FILE).read_text(encoding="utf-8")
        write_atomically(directory / MODELING_FILE, source)
    if tokenizer is not None:
        tokenizer.save(directory)
        if not layout.config.type_vocab_size:
            # Without segments, most classes of transformers refuse the token_type_ids of a default tokenizer.
            file = directory / "tokenizer_config.json"
            write_json(file, read_json(file) | {"model_input_names": ["input_ids", "attention_mask"]})
