"""What a folder offers is found because its file is there; what others register or name by its path, too."""

import importlib

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.core.registry import Registry
from bert_jax.tasks import TASKS

REMEDY = "install it, or run `python -m bert_jax` instead of `bert-jax` in the folder that holds it"


@pytest.fixture
def shapes(tmp_path, monkeypatch):
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes/__init__.py").write_text("")
    (tmp_path / "shapes/round_one.py").write_text("Shape = 'round'")
    (tmp_path / "shapes/empty.py").write_text("")
    (tmp_path / "shapes/broken.py").write_text("import not_installed_anywhere")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return Registry("shapes", "shape", "Shape")


def test_by_file_by_registration_and_by_path(shapes):
    assert shapes["round_one"] == shapes["round-one"] == shapes["shapes.round_one"] == "round"
    shapes["square"] = "four corners"
    assert shapes["square"] == "four corners"
    assert shapes.names() == ["broken", "empty", "round_one", "square"]
    assert Registry("shapes", "shape")["round_one"].__name__ == "shapes.round_one"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("round_two", 'no shape "round_two"; did you mean "round_one"?'),
        ("nowhere.at.all", f'no shape "nowhere.at.all": Python finds no module nowhere; {REMEDY}'),
        ("shapes.none", f'no shape "shapes.none": Python finds no module shapes.none; {REMEDY}'),
        (".at.all", 'no shape ".at.all"; known: broken, empty, round_one'),
        ("empty", 'no shape "empty": shapes.empty has no "Shape"'),
    ],
)
def test_an_unknown_name(shapes, name, message):
    with pytest.raises(BertJaxError) as error:
        shapes[name]
    assert str(error.value) == message


def test_a_file_of_this_folder_is_pointed_out(shapes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "oval.py").write_text("Shape = 'oval'")
    with pytest.raises(
        BertJaxError, match="; oval.py is found in a folder: folder.oval names folder/oval.py$"
    ):
        shapes["oval"]


def test_a_module_that_is_no_task_is_refused():
    with pytest.raises(BertJaxError, match='no task "os.path": os.path has no "Config"'):
        TASKS["os.path"]


def test_a_file_names_nothing_by_a_path(shapes):
    assert shapes.look_up_from_file("round-one") == "round"
    with pytest.raises(BertJaxError, match='did you mean "round_one"'):
        shapes.look_up_from_file("shapes.round_one")
    shapes["my.own"] = "square"
    assert shapes.look_up_from_file("my.own") == "square"


def test_what_a_file_itself_lacks_is_not_hidden(shapes):
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        shapes["broken"]
