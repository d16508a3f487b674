"""What the flags of a cluster refuse, before Ray is imported or anything is written."""

import socket

import pytest

from bert_jax.cluster import connection
from bert_jax.command.main import main
from tests.support.small_models import write_model


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Runs a command that fails in a folder with a model and inputs; what it said in one line."""
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model", heads=("classify",), labels=("bad", "good"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("the cat\n")

    def run(verb: str, *flags: str) -> str:
        model = ["--tokenizer", "model"] if verb == "prepare" else ["--model", "model"]
        before = sorted(tmp_path.rglob("*"))
        assert main([verb, *model, *flags]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert sorted(tmp_path.rglob("*")) == before
        return line.removeprefix(f"bert-jax {verb}: ").replace(f"{tmp_path}/", "")

    return run


IN, OUT = ("--input", "in"), ("--output", "out")


@pytest.mark.parametrize("flags", [("--workers", "2"), ("--dry-run",)])
def test_flags_of_a_cluster_need_one(flags, refused):
    assert (
        refused("predict", *IN, *OUT, *flags)
        == f"{flags[0]} is for a cluster; add --ray, or leave {flags[0]} out"
    )


@pytest.mark.parametrize("address", ["somewhere", ":6379", "ray://host:10001", "host:123456"])
def test_an_address_has_a_host_and_a_port(address, refused):
    assert refused("embed", *IN, *OUT, "--ray", address).startswith(
        f'--ray "{address}" is no address of a cluster; '
    )


def test_without_ray_one_line_says_what_to_install(refused, monkeypatch):
    monkeypatch.setattr(connection, "find_spec", lambda name: None)
    expected = (
        "--ray needs Ray, which is not installed; install it, in the folder that bert_jax was installed from: "
        "pip install '.[ray]'"
    )
    assert refused("predict", *IN, *OUT, "--ray") == expected
    assert refused("prepare", *IN, *OUT, "--ray") == expected


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((*IN,), "--ray writes a file for each shard; give a folder for them, --output FOLDER"),
        ((*OUT,), "--ray reads files that all machines see, not -; name a file, a folder or a glob"),
        ((*IN, "--output", "model/out"), "model/out is in the model's directory; name one elsewhere"),
        (
            (*IN, *OUT, "--rank-for-labelling"),
            "--rank-for-labelling compares all texts with one another; leave --ray out",
        ),
    ],
)
def test_predict_refuses(flags, message, refused):
    pytest.importorskip("ray")
    assert refused("predict", *flags, "--ray") == message


def test_prepare_has_workers_instead_of_processes(refused):
    pytest.importorskip("ray")
    line = refused("prepare", *IN, *OUT, "--ray", "--processes", "2")
    assert line == "--processes are those of one machine; give --workers, or leave --ray out"


def test_nothing_listens_at_the_address():
    """It is told at once: Ray would wait for a minute."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            connection.BertJaxError, match=f"no Ray cluster at {address} .*Connection refused"
        ):
            connection.check_reachable(address)
