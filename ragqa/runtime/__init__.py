"""Run trained encoders and readers with ONNX Runtime or torch; export them to ONNX."""

import os

# Without this variable, ONNX Runtime reports its use to its maker, although the user has not agreed.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
