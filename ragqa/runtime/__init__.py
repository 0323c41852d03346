"""Run trained encoders and readers with ONNX Runtime or torch; export them to ONNX."""

import os

# Without this variable, ONNX Runtime reports usage to its maker, to which users of a local system have not agreed.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
