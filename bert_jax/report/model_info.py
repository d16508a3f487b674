"""`bert-jax info`: the contents of a model directory, and what is unusual about it."""

import math
import shlex
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.terminal import wrap_for_terminal
from bert_jax.hub.layout import Layout
from bert_jax.hub.layout_warnings import layout_warnings, lowercases_text
from bert_jax.hub.model_directory import ModelDirectory, abbreviate_names
from bert_jax.hub.multi_vector_encoder import DOCUMENT
from bert_jax.hub.published_form import MODELING_FILE, modeling_classes
from bert_jax.hub.weights import read_weight
from bert_jax.models.heads import HEADS
from bert_jax.predictions import calibration as calibrations
from bert_jax.predictions import out_of_scope as scopes
from bert_jax.predictions import training_origin
from bert_jax.report import model_card

SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
    "vocab_size",
)
ERRORS = ("examples", "error_before", "error_after", "loss_before", "loss_after")  # of a calibration


def collect_model_facts(directory) -> dict:
    """Return everything that `info` prints."""
    model = ModelDirectory.open(directory)
    directory, layout, tensors = model.path, model.layout, model.tensors
    odd, unread, counts = [], [], {}
    try:
        model.check_tensors(layout)
        shapes = layout.shapes()
        unread = model.unread_tensors
        counts = dict.fromkeys(layout.module_names, 0)
        for path, shape in shapes.items():
            counts[path.split("/")[0]] += math.prod(shape)
        for name in tensors:
            if name not in unread:
                read_weight(tensors, name, directory)
    except BertJaxError as error:
        odd.append(str(error))
    try:
        tokenizer = model.tokenizer
        tokenizer_facts = {
            "kind": type(tokenizer).__name__,
            "size": tokenizer.size,
            "lower_cases": lowercases_text(tokenizer),
        }
        odd += layout_warnings(model)
    except BertJaxError as error:
        tokenizer_facts = None
        odd.append(str(error))
    if not (layout.family.encoder_in_transformers or layout.is_static):
        odd.append(
            f"transformers has no {layout.family.model_type}, and without the published code it opens these files as "
            "another model, with random parameters; use bert_jax.load"
        )
    for head in layout.heads if layout.family.encoder_in_transformers else ():
        if head in layout.family.not_in_transformers:
            name = f"transformers has no {layout.family.class_name}{HEADS[head].architecture}"
            remote = f"with trust_remote_code=True it opens the model by {MODELING_FILE}, and else "
            odd.append(f"{name}; {remote if modeling_classes(layout) else 'it opens '}the encoder alone")

    def read_or(otherwise, read):
        """Return what `read` returns; if it fails, note the error and return `otherwise`."""
        try:
            return read()
        except BertJaxError as error:
            odd.append(str(error))
            return otherwise

    with warnings.catch_warnings(record=True) as ignored:
        warnings.simplefilter("always")
        calibration = read_or(
            calibrations.UNCALIBRATED, lambda: calibrations.read_calibration(directory, layout.labels)
        )
    texts, positions = layout.text_settings, layout.config.max_position_embeddings
    longest = (texts and texts.max_length) or positions
    if tokens := layout.multi_vector:
        longest = tokens.longest(DOCUMENT, positions)
    origin = read_or(training_origin.UNKNOWN_ORIGIN, lambda: training_origin.read_origin(directory))
    scope = read_or(scopes.NO_DETECTOR, lambda: scopes.read_detector(directory, layout.config.hidden_size))
    odd += [str(warning.message) for warning in ignored]
    return {
        "directory": str(directory),
        "model_type": layout.family.model_type,
        "sizes": {name: getattr(layout.config, name) for name in SIZES},
        "parameters": {**counts, "all": sum(counts.values())},
        "sequence_length": longest,
        "pooling": find_pooling(layout),
        "embedder": embedder_facts(layout),
        "heads": list(layout.heads),
        "labels": list(layout.labels),
        "tokenizer": tokenizer_facts,
        "origin": asdict(origin) if origin.command else None,
        "calibration": {name: getattr(calibration, name) for name in ERRORS}
        if calibration.is_fitted
        else None,
        "scope": {"vectors": len(scope.vectors), "known": len(scope.known)} if scope.is_fitted else None,
        "unread": unread,
        "odd": odd,
    }


def describe_model(directory, as_json: bool = False) -> str:
    facts = collect_model_facts(directory)
    if as_json:
        return to_json(facts, indent=2)
    sizes, parameters, tokenizer = facts["sizes"], facts["parameters"], facts["tokenizer"]
    parts = ", ".join(f"{part} {n:,}" for part, n in parameters.items() if part != "all")
    lines = {
        "directory": facts["directory"],
        "model": f"{facts['model_type']}, {sizes['num_hidden_layers']} layers of {sizes['hidden_size']} "
        f"with {sizes['num_attention_heads']} heads, feed-forward {sizes['intermediate_size']}",
        "input": f"{sizes['max_position_embeddings']} positions, {sizes['type_vocab_size']} segment types, "
        f"{sizes['vocab_size']:,} word embeddings",
        "parameters": f"{parameters['all']:,} ({parts})" if parts else "unknown, see below",
        "length": f"texts of up to {facts['sequence_length']:,} tokens",
        "pooling": facts["pooling"] or "none, a state for each token",
        "embedder": describe_embedder(facts["embedder"]),
        "heads": ", ".join(facts["heads"]) or "none",
        "labels": ", ".join(facts["labels"][:12]) + " ..." * (len(facts["labels"]) > 12),
        "tokenizer": "none",
    }
    if tokenizer:
        case = "lower-cases" if tokenizer["lower_cases"] else "keeps case"
        lines["tokenizer"] = f"{tokenizer['kind']}, {tokenizer['size']:,} entries, {case}"
    if known := facts["calibration"]:
        errors = calibrations.Calibration(**known).describe_errors()
        lines["calibration"] = f"on {known['examples']:,} examples; {errors}"
    elif facts["labels"]:
        lines["calibration"] = "none; probabilities are uncalibrated"
    if known := facts["scope"]:
        lines["scope"] = (
            f"similarities of {known['known']:,} validation texts to {known['vectors']:,} training texts"
        )
    if origin := facts["origin"]:
        of_file = f" of {files}" if (files := find_training_data(origin["command"])) else ""
        lines["trained on"] = f"{origin['examples']:,} examples{of_file}"
        lines["trained by"] = origin["command"]
    elif model_card.was_written_by_run(path := Path(facts["directory"])):
        lines["trained by"] = f"bert-jax; {path / model_card.CARD_FILE} has the command and the data"
    rows = [
        *((name, value) for name, value in lines.items() if value),
        *[("not read", abbreviate_names(facts["unread"]))] * bool(facts["unread"]),
        *(("odd", note) for note in facts["odd"]),
    ]
    return "\n".join(wrap_for_terminal(f"{name:<12}{value}", sys.stdout, indent=12) for name, value in rows)


def embedder_facts(layout: Layout) -> dict | None:
    embeds = layout.text_settings
    if embeds is None:
        return None
    names = ("normalize", "activation", "max_active_dims", "query_weights", "prompts")
    kept = {name: getattr(embeds, name) for name in names if hasattr(embeds, name)}
    if tokens := layout.multi_vector:
        kept["expansion"] = tokens.expansion and asdict(tokens.expansion)
    if layout.m3:
        kept["m3"] = True
    return {"dimensions": layout.vector_size, **kept}


def describe_embedder(facts: dict | None) -> str:
    """Describe an embedder in a line; "" for a model that is none.

    >>> describe_embedder({"dimensions": 384, "normalize": True, "prompts": {"query": "query: "}})
    'vectors of 384, normalized; prompts: query "query: "'
    >>> describe_embedder({"dimensions": 30522, "activation": "relu", "query_weights": True, "prompts": {}})
    'sparse vectors of 30,522, relu; queries without the network'
    >>> describe_embedder({"dimensions": 128, "expansion": {"length": 32}, "prompts": {}})
    'token vectors of 128, queries lengthened to 32'
    >>> describe_embedder({"dimensions": 1024, "normalize": True, "m3": True, "prompts": {}})
    'vectors of 1,024, normalized; also sparse and token vectors'
    """
    if facts is None:
        return ""
    named = ", ".join(f'{name} "{text}"' for name, text in facts["prompts"].items() if text)
    if "activation" in facts:
        queries = "; queries without the network" if facts["query_weights"] else ""
        shown = f"sparse vectors of {facts['dimensions']:,}, {facts['activation']}{queries}"
    elif "expansion" in facts:
        lengthened = f", queries lengthened to {facts['expansion']['length']}" if facts["expansion"] else ""
        shown = f"token vectors of {facts['dimensions']:,}{lengthened}"
    else:
        normalized = "normalized" if facts["normalize"] else "not normalized"
        others = "; also sparse and token vectors" if "m3" in facts else ""
        shown = f"vectors of {facts['dimensions']:,}, {normalized}{others}"
    return f"{shown}{f'; prompts: {named}' if named else ''}"


def find_pooling(layout: Layout) -> str:
    """Return how token states are pooled to one state of a text; "" if no embedder and no head needs one."""
    if embeds := layout.embedder or layout.sparse:
        return embeds.pooling
    reads = [HEADS[head].reads for head in layout.heads if not HEADS[head].each_token]
    return reads[-1] if reads else ""


def find_training_data(command: str) -> str:
    """Return the training data that a command names, or ""."""
    key = "--config.data.train="
    return next((word.removeprefix(key) for word in shlex.split(command) if word.startswith(key)), "")
