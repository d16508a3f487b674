"""What a user does with a directory of each family: words for masks, vectors, fine-tunings, predictions."""

import json
import random
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
from sentencepiece import SentencePieceTrainer

import bert_jax
from bert_jax.command.main import main
from bert_jax.data.examples.epochs import shuffle_epochs
from bert_jax.hub import model_directory as hub
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.inference.embedder import Embedder
from bert_jax.tasks import load_config as load_task
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.wordpiece import WordPiece
from bert_jax.training.log import read_metrics
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from bert_jax.training.task import Task
from tests.support.cases import long_except
from tests.support.families import FAMILY_CONFIGS, family_layout
from tests.support.finetuning_runs import finetune
from tests.support.made_up_language import ENTRIES
from tests.support.tables import write_csv
from tests.support.texts import random_texts
from tests.support.vocabularies import write_bytepair

# Relative positions and sentence pieces are in the fine-tunings below.
SHOWN = ("modernbert",)
STEPS = 12


def sentence_pieces(directory, name: str, **special):
    """A `.model` of the made-up words."""
    with open(directory / name, "wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(random_texts(400)), model_writer=file, vocab_size=300, hard_vocab_limit=False,
            minloglevel=2, pad_id=0, **special,
        )  # fmt: skip
    return open_tokenizer(directory)


def made_up_tokenizer(name: str, directory):
    directory.mkdir()
    match name:
        case "albert":
            symbols = ["[CLS]", "[SEP]", "[MASK]"]
            special = {"unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": symbols}
            return sentence_pieces(directory, "spiece.model", **special)
        case "deberta-v2":
            special = {
                "pad_piece": "[PAD]",
                "bos_piece": "[CLS]",
                "eos_piece": "[SEP]",
                "unk_piece": "[UNK]",
            }
            ids = {"bos_id": 1, "eos_id": 2, "unk_id": 3}
            return sentence_pieces(directory, "spm.model", **ids, **special)
        case "deberta":
            return open_tokenizer(write_bytepair(directory, ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")))
        case "mpnet":
            return WordPiece.from_vocabulary(["<s>", "<pad>", "</s>", "<unk>", *ENTRIES, "<mask>"])
    return WordPiece.from_vocabulary(ENTRIES)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """name, head -> a directory with initial values: a masked LM or a classifier of two labels, as if trained."""

    @cache
    def written(name: str, head: str):
        root = tmp_path_factory.mktemp(name)
        tokenizer = made_up_tokenizer(name, root / "tokenizer")
        published = FAMILY_CONFIGS[name] | {"vocab_size": tokenizer.size}
        layout = family_layout(name, published, (head,), ("bad", "good") if head == "classify" else ())
        if layout.config.block == "disentangled":  # with the table that only the mask decoder reads
            layout = replace(layout, config=layout.config.replace(positions="decoder"))
        params = jax.jit(lambda: init_random_params(Task(layout), RunConfig()))()
        # Farther apart than initial values, which would take hundreds of steps to learn from.
        params = jax.tree_util.tree_map_with_path(
            lambda path, x: x * 5 if path[-1].key in ("kernel", "words") else x, params
        )
        hub.save_model(root / "model", layout, jax.device_get(params), tokenizer)
        return root / "model"

    return written


def short(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts of w0 are good, those of w1 are bad."""
    rng = random.Random(seed)
    words = [rng.randrange(2) for _ in range(count)]
    return [(f"w{word} w{rng.randint(20, 90)} w{word}", ("good", "bad")[word]) for word in words]


@pytest.mark.slow
@pytest.mark.parametrize("name", long_except(FAMILY_CONFIGS, SHOWN))
def test_words_vectors_and_files(name, directory, tmp_path, capsys):
    model = directory(name, "mlm")
    opened = bert_jax.load(model)
    assert [len(filled) for filled in opened.fill_mask(["w20 [MASK]", "[MASK] w30"], top_k=3)] == [3, 3]
    embedder = Embedder.load(model, pooling="mean")
    assert embedder.encode(["w20 w21", "w30"]).shape == (2, 32)
    assert main(["import", str(model), str(tmp_path / "copy")]) == 0 and main(["info", str(model)]) == 0
    assert opened.layout.family.model_type in capsys.readouterr().out
    again = Embedder.load(tmp_path / "copy", pooling="mean")
    np.testing.assert_array_equal(again.encode("w20 w21"), embedder.encode("w20 w21"))


IN_TRANSFORMERS = [name for name in FAMILY_CONFIGS if FAMILIES[name].encoder_in_transformers]


@pytest.mark.long
@pytest.mark.parametrize("name", IN_TRANSFORMERS)
def test_a_fine_tuning_is_that_of_transformers(name, directory, tmp_path):
    model = directory(name, "classify")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tests.bench.finetune import TorchFinetuning
    from tests.bench.torch_training import Updates

    train = write_csv(tmp_path / "train.csv", short(8 * STEPS, 0))
    settings = {
        "data.train": train, "data.validation": write_csv(tmp_path / "dev.csv", short(24, 1)), "epochs": 1,
        "log.every": 1, "model.head_dropout": 0,
    }  # fmt: skip
    finetune("classify", model, tmp_path / "run", **settings)
    ours = [
        line["classify_loss"]
        for line in read_metrics(tmp_path / "run/metrics.jsonl")
        if line["kind"] == "train"
    ]

    values = json.loads((tmp_path / "run/run.json").read_text())["config"]
    overrides = [
        f"{key}={values[key]}" for key in ("init", "epochs", "optimizer.learning_rate", "data.batch_size")
    ]
    overrides += [f"data.train={train}", "data.max_length=32", f"data.validation={tmp_path / 'dev.csv'}"]
    module, config = load_task("configs/classify.py", overrides)
    task, data, config = module.open(config, ModelDirectories())
    theirs = TorchFinetuning(task.layout, config, data.tokenizer.special.pad)
    updates, losses = Updates(torch, theirs.model, config.optimizer, config.steps), []
    theirs.model.eval()  # without dropout
    for numbers in shuffle_epochs(
        len(data.train), config.steps * config.data.batch_size, config.seed
    ).reshape(config.steps, -1):
        batch = [data.train[i] for i in numbers]
        loss = theirs.model(**theirs.tokens(batch), **theirs.targets(batch)).loss
        updates.apply(loss)
        losses.append(loss.item())
    assert len(ours) == STEPS and abs(ours[0] - ours[-1]) > 0.05
    np.testing.assert_allclose(ours, losses, atol=1e-3)

    path = tmp_path / "run/model"
    result, given = bert_jax.load(path), [text for text, _ in short(4, 2)]
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    assert ("token_type_ids" in tokenizer("w1")) == bool(result.config.type_vocab_size)
    opened = transformers.AutoModelForSequenceClassification.from_pretrained(path).eval()
    logits = opened(**tokenizer(given, padding=True, return_tensors="pt")).logits
    likely = torch.softmax(logits, -1).detach().numpy()
    assert result.labels == ("bad", "good")
    np.testing.assert_allclose([result.predict_proba(text) for text in given], likely, atol=1e-5)


@pytest.mark.slow
def test_tags_are_learnt_with_sentence_pieces(directory, tmp_path):
    lines = "".join(f"w{i} O\nw20 B-X\nw{i + 1} O\n\n" for i in range(16))
    (tmp_path / "train.conll").write_text(lines)
    settings = {"data.train": tmp_path / "train.conll", "data.overlap": 8, "epochs": 1}
    finetune("tag", directory("albert", "mlm"), tmp_path / "run", **settings)
    model = bert_jax.load(tmp_path / "run/model")
    assert model.layout.heads == ("tag",)
    assert all(span.text == "w1 w20"[span.start : span.end] for span in model.tag("w1 w20"))
