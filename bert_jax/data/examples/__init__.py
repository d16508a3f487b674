"""Labelled texts: read, checked, arranged in rows, walked through in epochs."""
