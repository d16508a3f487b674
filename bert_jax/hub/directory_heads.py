"""The heads of a model directory and their labels, by its config.json and the names of its tensors."""

from collections.abc import Mapping

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.hub.family import Family, size_of
from bert_jax.hub.layout import Layout
from bert_jax.models.heads import HEADS

MOST_LABELS = 1 << 20


def is_prefixed(tensors: Mapping, family: Family) -> bool:
    return any(name.startswith(f"{family.prefix}.") for name in tensors)


def read_architecture(published: dict, family: Family, where) -> str:
    """Return the name of the class that saved the model, without the family: "ForMaskedLM", "Model" or ""."""
    named = published.get("architectures") or [""]
    suffix = str(named[0]).removeprefix(family.class_name)
    head_architectures = (HEADS[head].architecture for head in HEADS if head in family.heads)
    known = {"", "Model", *family.architectures, *head_architectures}
    if suffix not in known:
        raise BertJaxError(
            f"{where}: the architecture {named[0]} has a head that is not supported; "
            f"{suggest_name(suffix, sorted(known - {''}))}"
        )
    return suffix


def named_heads(architecture: str, family: Family) -> tuple[str, ...]:
    """Return the heads that an architecture names."""
    several = family.architectures.get(architecture, ())
    return tuple(
        head
        for head in HEADS
        if head in family.heads and (head in several or HEADS[head].architecture == architecture)
    )


def heads_in(tensors: Mapping, architecture: str, layout: Layout) -> tuple[str, ...]:
    """List the heads of a directory: those its architecture names, and all others whose tensors are complete."""
    family = layout.family
    names = {
        head: {name for part in family.head_mappings(head, layout.config) for name in part.tensor_names}
        for head in HEADS
        if head in family.heads
    }
    present = set(named_heads(architecture, family))
    if not is_prefixed(tensors, family):
        # An embedder keeps the architecture name of its base model, but maybe not that model's heads.
        present = {head for head in present if not names[head].isdisjoint(tensors)}
    for head in names:
        # Sequence and token classifiers use the same tensor names; without an architecture, the pooler decides.
        pooler = set[str]()
        if HEADS[head].pooler and not family.has_own_pooler(head):
            pooler = family.pooler_names(is_prefixed(tensors, family))
        taken = set[str]().union(*(names[other] for other in present))
        if names[head] and names[head] | pooler <= set(tensors) and not names[head] & taken:
            present.add(head)
    return tuple(head for head in names if head in present)


def read_label_names(published: dict, where) -> tuple[str, ...]:
    named = published.get("id2label")
    if named is None:
        count = size_of(published, "num_labels", 2, where)
        if count > MOST_LABELS:
            raise BertJaxError(
                f"{where}: num_labels = {count} is too many: at most {MOST_LABELS:,} are supported"
            )
        return tuple(f"LABEL_{i}" for i in range(count))
    try:
        ordered = {int(i): str(label) for i, label in named.items()}
        return tuple(ordered[i] for i in range(len(ordered)))
    except (AttributeError, ValueError, KeyError):
        raise BertJaxError(
            f"{where}: id2label does not number the labels 0, 1, 2 ...: {str(named)[:80]}"
        ) from None
