"""A fine-tuned model remembers the columns of its training data, and the command that trained it."""

import shutil
from dataclasses import replace

import pytest

import bert_jax
from bert_jax.command import main as cli
from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import AUTODETECT, ColumnsFromTraining, ExampleColumns
from bert_jax.inference.text_outcomes import read_examples
from bert_jax.predictions import training_origin
from bert_jax.predictions.kinds.relevance import Relevance
from bert_jax.predictions.training_origin import TrainingOrigin
from bert_jax.report import model_info
from tests.support.prediction_rows import predict_rows
from tests.support.small_models import SMALL_TEXTS, edit_config, write_model
from tests.support.tables import write_csv, write_jsonl
from tests.support.texts import marked_texts

NAMED = ExampleColumns(
    text="review", text_pair="title", label="stars", id="key", group="film", label_separator=";"
)
LABELS = ("no", "yes")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    write_model(path, heads=("classify",), labels=LABELS)
    return path


@pytest.fixture
def trained(written, tmp_path):
    """A model whose training data had these columns."""

    def on(columns: ExampleColumns, **config):
        path = shutil.copytree(written, tmp_path / "model")
        edit_config(path, **config)
        training_origin.save_origin(
            path, TrainingOrigin("bert-jax train", len(SMALL_TEXTS), {"train": "1f"}, columns)
        )
        return bert_jax.load(path)

    return on


def csv_of(path, header, *columns):
    return str(write_csv(path, zip(*columns, strict=True), header))


def cycled(*values):
    return [values[i % len(values)] for i in range(len(SMALL_TEXTS))]


# What a table is read by


def of(row: dict, columns: ExampleColumns = AUTODETECT, before: ExampleColumns = NAMED) -> ExampleColumns:
    return TrainingOrigin(columns=before).complete_columns(columns).resolve("row 1", row)


def test_columns_of_the_training_data_are_those_of_a_table_that_has_them():
    row = dict.fromkeys(("REVIEW ", "title", "stars", "key", "film"), "")
    assert of(row) == ExampleColumns("REVIEW ", "title", "stars", "key", "film", ";")
    assert of(dict.fromkeys(("review", "label", "text"), "")) == ExampleColumns("review", label_separator=";")
    assert of({"text": ""}) == ExampleColumns(label_separator=";"), "and others are evident"


def test_what_is_named_now_comes_first():
    row = dict.fromkeys(("review", "title", "stars", "other"), "")
    assert of(row, ExampleColumns(label="other")) == ExampleColumns(
        "review", "title", "other", label_separator=";"
    )
    assert of(row, ExampleColumns(text="other")) == ExampleColumns(
        "other", label="stars", label_separator=";"
    ), "it is read alone"
    assert of(row, ExampleColumns(text_pair="other")).text_pair == "other"
    assert of(row, ExampleColumns(label_separator=",")).label_separator == ","
    assert not of(row, before=ExampleColumns(skip_bad=True)).skip_bad


def test_a_table_has_no_header_where_that_of_the_training_data_had_none():
    numbered, named = ExampleColumns("1", label="0"), ExampleColumns("review", label="0")
    assert (
        ColumnsFromTraining(training_columns=numbered).numbered
        and not ColumnsFromTraining(training_columns=named).numbered
    )
    assert (
        not ColumnsFromTraining(text="review", training_columns=numbered).numbered
        and ColumnsFromTraining("0", training_columns=named).numbered
    )
    assert not ColumnsFromTraining(training_columns=AUTODETECT).numbered


# evaluate and predict


def test_files_of_the_same_shape_need_no_flags(trained, tmp_path):
    model, stars = trained(replace(NAMED, text_pair="")), cycled("no", "yes")
    header = ("film", "stars", "key", "review", "text")
    data = csv_of(
        tmp_path / "a.csv", header, cycled("x"), stars, range(len(SMALL_TEXTS)), SMALL_TEXTS, cycled("w")
    )
    examples, _ = read_examples(model, data)
    assert [(e.text, e.label, e.id, e.document) for e in examples] == [
        (text, label, str(n), "x") for n, (text, label) in enumerate(zip(SMALL_TEXTS, stars, strict=True))
    ]
    found = list(predict_rows(model, data))
    expected = [label.label for label in model.classify(SMALL_TEXTS)]
    assert [(one["id"], one["label"]) for one in found] == [
        (str(n), label) for n, label in enumerate(expected)
    ]
    assert [e.text for e in read_examples(model, data, ExampleColumns(text="text"))[0]] == cycled("w")
    with pytest.raises(BertJaxError, match='"titel"'):
        read_examples(model, data, ExampleColumns(text_pair="titel"))


def test_files_of_another_shape_are_read_by_what_is_evident(trained, tmp_path):
    model = trained(NAMED)
    data = csv_of(tmp_path / "a.csv", ("text", "label"), SMALL_TEXTS, cycled("no", "yes"))
    assert [e.text for e in read_examples(model, data)[0]] == SMALL_TEXTS
    assert [e.label for e in read_examples(model, data)[0]] == cycled("no", "yes")
    (tmp_path / "a.txt").write_text("\n".join(SMALL_TEXTS))
    lines = list(predict_rows(model, str(tmp_path / "a.txt")))
    assert lines == list(predict_rows(model, data)) and len(lines) == len(SMALL_TEXTS)


def test_numbered_columns_are_remembered(trained, tmp_path):
    model = trained(ExampleColumns("1", label="0"))
    (tmp_path / "a.csv").write_text("".join(f"yes,{text},?\n" for text in SMALL_TEXTS))
    examples, _ = read_examples(model, str(tmp_path / "a.csv"))
    assert [(e.text, e.label) for e in examples] == [(text, "yes") for text in SMALL_TEXTS]
    rows = write_jsonl(tmp_path / "a.jsonl", [{"text": text, "label": "no"} for text in SMALL_TEXTS])
    assert [e.text for e in read_examples(model, rows)[0]] == SMALL_TEXTS, "a file of another shape"
    headed = csv_of(tmp_path / "headed.csv", ("label", "text"), cycled("no", "yes"), SMALL_TEXTS)
    with pytest.raises(BertJaxError, match="row 1.*header"):
        read_examples(model, headed)
    assert [e.text for e in read_examples(model, headed, ExampleColumns(text="text"))[0]] == SMALL_TEXTS


def test_the_separator_is_remembered(trained, tmp_path):
    model = trained(ExampleColumns(label_separator=";"), problem_type="multi_label_classification")
    data = csv_of(tmp_path / "a.csv", ("text", "labels"), SMALL_TEXTS, cycled("no;yes", "", "yes"))
    assert [e.label for e in read_examples(model, data)[0]] == cycled(("no", "yes"), (), ("yes",))


def test_two_models_are_compared_by_the_columns_of_the_first(trained, written, tmp_path, capsys):
    trained(ExampleColumns("review", label="stars"))
    data = csv_of(
        tmp_path / "a.csv", ("review", "stars", "text"), SMALL_TEXTS, cycled("no", "yes"), cycled("cat")
    )
    assert cli.main(["evaluate", "--compare", str(tmp_path / "model"), str(written), "--data", data]) == 0
    assert "B - A" in capsys.readouterr().out


# The file


def test_a_model_that_is_saved_again_remembers_what_it_did(trained, tmp_path):
    model = trained(NAMED)
    model.save(tmp_path / "again")
    assert (
        bert_jax.load(tmp_path / "again").origin
        == model.origin
        == training_origin.read_origin(tmp_path / "model")
    )
    assert model.origin.columns == NAMED and "origin.json" in hashes.read_hashes(tmp_path / "again")


@pytest.mark.slow
def test_a_model_of_the_command_remembers(encoder_path, tmp_path, capsys):
    rows = [(label, text) for text, label in marked_texts(60, 0)]
    data = write_csv(tmp_path / "train.csv", rows[1:], rows[0])  # without a header
    settings = {
        "init": encoder_path, "data.train": data, "data.columns.text": 1, "data.columns.label": 0,
        "method": "linear_probe", "head_init": "linear_probe", "data.max_length": 32, "data.folds": 2, "report": False,
    }  # fmt: skip
    flags = [f"--config.{name}={value}" for name, value in settings.items()]
    command = ["train", "--config", "configs/classify.py", "--workdir", str(tmp_path / "run"), *flags]
    assert cli.main(command) == 0
    model = str(tmp_path / "run/model")
    capsys.readouterr()
    assert cli.main(["predict", "--model", model, "--input", str(data)]) == 0
    assert capsys.readouterr().out.count("\n") == 60
    found = training_origin.read_origin(model)
    assert found.columns == ExampleColumns("1", label="0") and found.examples == 60 and found.data
    told = model_info.describe_model(model)
    assert (
        "trained on  60 examples" in told
        and "trained by  bert-jax train --config configs/classify.py" in told
    )


def test_a_cross_encoder_reads_the_columns_that_it_learnt_from(tmp_path):
    origin = TrainingOrigin(columns=ExampleColumns("asked", "found", "fits"))
    rows = [{"found": f"a text {n}", "asked": "what ?", "note": "w", "fits": n % 2} for n in range(4)]
    data = write_jsonl(tmp_path / "a.jsonl", rows)
    columns = origin.complete_columns(AUTODETECT)
    pairs = [(example.text, example.label) for example in Relevance.reader.read(data, columns)]
    assert pairs == [(("what ?", f"a text {n}"), float(n % 2)) for n in range(4)]
    described = Relevance.reader.describe_columns(data, columns)
    assert 'query "asked", document "found"' in described and 'score "fits"' in described
