"""Repositories of the Hugging Face hub, to which finished models are pushed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError, first_line

REMEDIES = {
    401: "log in with `hf auth login`, or set HF_TOKEN to a token that may write",
    403: "name a repository that you may write to, or use a token that may write",
}


@contextmanager
def explain_hub_errors(name: object) -> Iterator[None]:
    try:
        yield
    except BertJaxError:
        raise
    except Exception as error:  # offline, unknown, forbidden: a dozen types from three libraries
        status = getattr(getattr(error, "response", None), "status_code", 0)
        remedy = REMEDIES.get(status, "check the name, OWNER/NAME, and the network, and try again")
        told = getattr(error, "server_message", None) or first_line(error)
        raise BertJaxError(
            f"{name!s:.60} on the Hugging Face hub cannot be written to ({type(error).__name__}: {told}); {remedy}"
        ) from error


def create_repository(name: str, private: bool | None = None) -> str:
    """Create a repository, unless it is there, and return its full name; refuse one that the user may not write to."""
    from huggingface_hub import HfApi, get_token

    with explain_hub_errors(name):
        if not get_token():
            raise BertJaxError(
                f"{name!s:.60}: you are not logged in to the Hugging Face hub; {REMEDIES[401]}"
            )
        hub = HfApi()
        repository = hub.create_repo(name, private=private, exist_ok=True).repo_id
        # Where a repository of somebody else has the name, `create_repo` takes it for ours.
        hub.auth_check(repository, write=True)
    return repository


def push_directory(
    directory: Path, repository: str, *, commit_message: str | None = None, revision: str | None = None
) -> str:
    """Push the files that a finished model directory lists to a repository that is there, and return its address."""
    from huggingface_hub import HfApi

    files = hashes.read_hashes(directory)
    assert files is not None, "a finished model directory lists its files"
    with explain_hub_errors(repository):
        hub = HfApi()
        if revision is not None:
            hub.create_branch(repository, branch=revision, exist_ok=True)
        hub.upload_folder(
            repo_id=repository,
            folder_path=directory,
            allow_patterns=[*files, hashes.FILE],
            commit_message=commit_message,
            revision=revision,
        )
    return f"{hub.endpoint}/{repository}"
