"""The heads of models/heads.py as ONNX nodes, one file each, found by the head's name.

The `build` of a file maps `(scope, states, axes)` to the outputs of the graph by name: `states` are what the head
reads, and `axes` are those of the states without the last.
"""
