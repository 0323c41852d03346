"""What runs a trained encoder or reader: ONNX Runtime on a CPU, torch on a GPU or when asked for."""
