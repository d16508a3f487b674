"""Models as files of other programs: ONNX graphs, written layer by layer."""
