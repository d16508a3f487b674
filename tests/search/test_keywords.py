"""Counts of words for keyword search."""

import numpy as np

from bert_jax.search import keywords


def test_a_count_beyond_its_type_is_the_highest_of_the_type(tmp_path):
    keywords.build_postings(tmp_path, ["ab " * 70_000, "ab"])
    assert np.load(tmp_path / keywords.FREQUENCIES).tolist() == [65_535, 1]
