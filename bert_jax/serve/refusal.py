"""What the server says instead of an answer."""

from bert_jax.core.errors import BertJaxError, one_line
from bert_jax.search.segment_files import DamagedFileError


class Refusal(Exception):
    """A request that is not answered: its HTTP status, one line for people, and TEI's name for the type of error."""

    def __init__(
        self,
        status: int,
        message: object,
        error_type: str = "Validation",
        headers: dict[str, str] | None = None,
    ):
        super().__init__(one_line(message))
        self.status, self.error_type, self.headers = status, error_type, headers or {}


def unprocessable(message: object) -> Refusal:
    return Refusal(422, message)


def overloaded(message: object) -> Refusal:
    return Refusal(429, message, "Overloaded", {"retry-after": "1"})


def unavailable(message: object) -> Refusal:
    return Refusal(503, message, "Unhealthy", {"retry-after": "1"})


def refusal_of(error: Exception) -> Refusal | None:
    """Return what a client is told of an error; None if the error is the server's own."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, DamagedFileError):
        return unavailable(error)
    return unprocessable(error) if isinstance(error, BertJaxError) else None
