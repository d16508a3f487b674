"""The families of published models, one file each, whose `FAMILY` says how directories are read and written."""

from collections.abc import Iterator
from dataclasses import replace

from bert_jax.core.config import MAX_INT
from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.core.registry import Registry
from bert_jax.hub.family import Family
from bert_jax.models.encoder_config import BERT_SIZES, EncoderConfig

FAMILIES = Registry("bert_jax.hub.families", "family", "FAMILY")


def all_families() -> Iterator[Family]:
    return (FAMILIES[name] for name in FAMILIES.names())


def find_family(published: dict, where) -> Family:
    """Return the family of a config.json."""
    # The first published configs had no model_type; all of them were BERT's.
    model_type = published.get("model_type") or "bert"
    types = [family.config_type for family in all_families()]
    if model_type not in types:
        hint = suggest_name(model_type, types)
        raise BertJaxError(f'{where}: model_type "{model_type}" is not supported; {hint}')
    candidates = [family for family in all_families() if family.config_type == model_type]
    # Those that share the type of another family first: that other one recognizes everything.
    candidates.sort(key=lambda family: not family.published_type)
    family = next(family for family in candidates if family.recognizes(published))
    if family.position_offset:
        pad = published.get("pad_token_id", family.position_offset - 1)
        if type(pad) is not int or not 0 <= pad <= MAX_INT:
            raise BertJaxError(f"{where}: pad_token_id = {pad!r} is not a token's id")
        family = replace(family, position_offset=pad + 1)
    return family


def family_for(config: EncoderConfig) -> Family:
    """Return the family that a new model of this configuration is saved as."""
    candidates = [family for family in all_families() if family.new_models]
    differing = [family.unsupported_settings(config) for family in candidates]
    if [] in differing:
        return candidates[differing.index([])]
    fewest = min(differing, key=lambda names: len(names))
    raise BertJaxError(
        f"no supported architecture (BERT, RoBERTa, ...) can have the settings {', '.join(fewest)}; change them, or "
        "add an architecture in bert_jax/hub/families"
    )


def resolve_size(name: str) -> tuple[str, EncoderConfig]:
    """Return the family of a published size, and its config; the family is "" for BERT's own sizes: the config decides.

    >>> resolve_size("tiny")[1].num_hidden_layers
    2
    """
    if name in BERT_SIZES:
        return "", EncoderConfig.from_size(name)
    sizes = sizes_of_families()
    if name not in sizes:
        raise BertJaxError(f'no size "{name}"; {suggest_name(name, [*BERT_SIZES, *sizes])}')
    return sizes[name].model_type, sizes[name].config_for_size(name)


def sizes_of_families() -> dict[str, Family]:
    """Map the published sizes of families other than BERT to their families."""
    return {size: family for family in all_families() for size in family.sizes}
