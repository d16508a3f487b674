"""The blocks of models/blocks as ONNX nodes, one file each, found by the block's name.

The `build` of a file maps `(scope, hidden, context, layer_type)` to hidden states, like the block itself.
"""
