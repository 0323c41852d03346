"""Inference of trained encoders and readers: ONNX Runtime on a CPU, torch on a GPU or when asked for."""

import os

# ONNX Runtime reports usage to its maker unless this is set before it is imported, and users of a local question
# answering system did not agree to that.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
