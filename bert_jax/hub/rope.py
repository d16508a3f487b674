"""Rotary position embeddings (RoPE) in published configs."""

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.family import size_of


def theta_of(table, default: float, where: str) -> float:
    """Return the base of the angles from a table of transformers' `rope_parameters`."""
    if table is None:
        return default
    if not isinstance(table, dict):
        raise BertJaxError(f"{where} = {table!r:.60} is not a table")
    rope_type = table.get("rope_type", table.get("type", "default"))
    if rope_type != "default":
        raise BertJaxError(f'{where}.rope_type = {rope_type!r:.60} is not supported, only "default"')
    theta = table.get("rope_theta")
    if theta is None:
        return default
    if type(theta) not in (int, float) or not theta >= 1:
        raise BertJaxError(f"{where}.rope_theta = {theta!r:.60} is not a number of at least 1")
    return float(theta)


def check_head_dim(published: dict) -> None:
    """Refuse heads of another size than the width of the model allows."""
    width, heads = size_of(published, "hidden_size", 768), size_of(published, "num_attention_heads", 12)
    if width % heads == 0 and published.get("head_dim", width // heads) not in (None, width // heads):
        raise BertJaxError(
            f"head_dim = {published['head_dim']!r:.60} is not hidden_size / num_attention_heads = {width // heads}"
        )


def rope_table(theta: float) -> dict:
    return {"rope_type": "default", "rope_theta": theta}
