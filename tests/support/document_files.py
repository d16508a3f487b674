"""Documents as they are read from files."""

from bert_jax.search.documents import DocumentColumns, DocumentSource


def read_documents(*inputs, **columns) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """{id: (title, text)}, and what was left out."""
    source = DocumentSource([str(path) for path in inputs], DocumentColumns(**columns))
    return {one.id: (one.title, one.text) for one in source.documents()}, list(source.notes())
