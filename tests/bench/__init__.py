"""This package measured beside other libraries: `python -m tests.bench NAME ...`, from the project's root."""
