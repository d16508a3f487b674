"""Models pushed to a hub that this machine serves."""

import pytest

from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.load import load
from bert_jax.inference.model_classes import CLASSES
from tests.support.fake_hub import TAKEN, running_hub
from tests.support.small_models import write_model

CARD = b"---\ntags: [bert_jax]\n---\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A model as a run leaves it, with a card, and beside it a file that is not its own."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "drawn")
    load(folder / "drawn").save(folder / "model")
    (folder / "model/README.md").write_bytes(CARD)
    hashes.write_hashes(folder / "model")
    (folder / "model/train.csv").write_text("secret")
    return folder / "model"


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "train.csv"}


@pytest.mark.parametrize("large", ["$^", r"\.safetensors$"])
def test_what_is_pushed_is_the_finished_directory_and_no_other_file(directory, large):
    with running_hub(large) as hub:
        address = load(directory).push_to_hub("me/bert", private=True, commit_message="the first")
        assert address == f"{hub.address}/me/bert" and hub.visibilities["me/bert"] == "private"
        assert (
            hub.files["me/bert", "main"] == contents(directory)
            and CARD in hub.files["me/bert", "main"].values()
        )
        assert set(hub.messages) == {"the first"} and bool(hub.objects) == (large != "$^")


def test_a_model_that_no_directory_holds_is_pushed_as_it_is_saved(directory, tmp_path):
    model = load(directory)
    changed = model.with_params(model.params)
    changed.save(tmp_path / "saved")
    with running_hub() as hub:
        changed.push_to_hub("bert", revision="other")
        assert hub.files == {("me/bert", "main"): {}, ("me/bert", "other"): contents(tmp_path / "saved")}
        assert hub.visibilities["me/bert"] is None


def test_a_repository_that_is_there_gets_another_commit(directory):
    with running_hub() as hub:
        for message in ("one", "two"):
            (hub.files.get(("me/bert", "main")) or {}).clear()
            load(directory).push_to_hub("me/bert", commit_message=message)
        assert hub.messages == ["one", "two"] and hub.files["me/bert", "main"] == contents(directory)


@pytest.mark.parametrize(
    ("name", "token", "words"),
    [
        ("me/bert", "", ["not logged in", "hf auth login"]),
        ("me/bert", "hf_wrong", ["Invalid username", "hf auth login"]),
        ("other/new", None, ["the rights", "a repository that you may write to"]),
        (TAKEN, None, ["You may not write", "a repository that you may write to"]),
        ("a/b/c", None, ["OWNER/NAME"]),
    ],
)
def test_what_cannot_be_pushed_is_said_in_one_line(directory, name, token, words):
    with running_hub(**({} if token is None else {"token": token})), pytest.raises(BertJaxError) as error:
        load(directory).push_to_hub(name)
    assert all(word in str(error.value) for word in [name, *words]), error.value
    assert "\n" not in str(error.value)


def test_a_hub_that_does_not_answer_is_said_in_one_line(directory):
    with running_hub() as hub, pytest.raises(BertJaxError, match="me/bert.*network"):
        hub.shutdown()
        hub.server_close()
        load(directory).push_to_hub("me/bert")


def test_every_class_that_load_returns_can_be_pushed():
    assert all(callable(of_use.push_to_hub) for of_use in CLASSES.values())
