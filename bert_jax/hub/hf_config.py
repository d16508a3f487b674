"""The config.json of a model directory: the keys that all families share."""

from pathlib import Path
from typing import Any, TypedDict

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json
from bert_jax.hub import sentence_transformers
from bert_jax.hub.families import static

CONFIGS = ("config.json", "bert_config.json")  # the first published models used the second name


class HFConfig(TypedDict, total=False):
    """Keys of config.json that all families share; keys that hold sizes are checked when they are read."""

    model_type: str | None
    architectures: list[str] | None
    id2label: dict[str, Any] | None
    num_labels: int | None
    pad_token_id: int | None
    problem_type: str | None
    prediction_kind: str | None
    allow_no_answer: bool | None


def read_hf_config(directory: Path) -> tuple[dict, Path]:
    for path in map(directory.joinpath, CONFIGS):
        if path.is_file():
            published = read_json(path, HFConfig)
            known = published if published.get("model_type") else static.describe_files(directory, published)
            return published | known, path
    if described := static.describe_files(directory, None):
        return described, directory / sentence_transformers.MODULES
    run_model = directory / "model"
    where = "it is not a model directory"
    if (run_model / CONFIGS[0]).is_file():
        where = f"the model of that run is {run_model}"
    raise BertJaxError(f"{directory} has no config.json; {where}")
