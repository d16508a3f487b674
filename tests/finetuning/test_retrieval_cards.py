"""The model cards of embedders and cross-encoders show code that opens the model."""

import jax
import pytest

from bert_jax.hub import model_directory as hub
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.predictions.calibration import Calibration
from bert_jax.tasks import load_config
from bert_jax.text.wordpiece import WordPiece
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from bert_jax.training.task import Task
from tests.support.families import FAMILY_CONFIGS, family_layout
from tests.support.made_up_language import ENTRIES
from tests.support.tables import write_jsonl

FITTED = Calibration("relevance", ("LABEL_0",), (2.0,), offset=-1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "library"), [("mosaic_bert", "bert_jax"), ("nomic_bert", "sentence-transformers")]
)
def test_cards_show_sentence_transformers_only_where_it_opens_the_model(family, library, tmp_path):
    layout = family_layout(family, FAMILY_CONFIGS[family] | {"vocab_size": len(ENTRIES)}, ("mlm",))
    params = jax.device_get(jax.jit(lambda: init_random_params(Task(layout), RunConfig()))())
    hub.save_model(tmp_path / "init", layout, params, WordPiece.from_vocabulary(ENTRIES))
    rows = [{"query": f"w{i}", "positive": f"w{i} w20", "negative_1": f"w{i + 1} w30"} for i in range(40)]
    train = write_jsonl(tmp_path / "train.jsonl", rows)
    for name, shown in (("embed", "Embedder"), ("rerank", "Reranker")):
        given = [f"init={tmp_path / 'init'}", f"data.train={train}", "data.max_length=16"]
        module, config = load_config(f"configs/{name}.py", given)
        card = module.open(config, ModelDirectories())[0].model_card
        assert card.library == library and f'bert_jax.{shown}.load("DIR")' in card.usage
        output = card.usage
        if card.describe_calibration:
            output += card.describe_calibration(FITTED)
        assert ("sentence_transformers" in output) is (library == "sentence-transformers")
