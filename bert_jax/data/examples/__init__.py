"""Labelled texts: reading, checking, arranging in rows, and shuffling in epochs."""
