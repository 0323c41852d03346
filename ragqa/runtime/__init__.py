"""What runs a trained encoder or reader: ONNX Runtime on a CPU, torch on a GPU or when asked for."""

import os

# ONNX Runtime reports its use to its maker unless this is set before it is imported. Nobody who asks
# their own documents agreed to that.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
