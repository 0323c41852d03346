"""Run trained encoders and readers with ONNX Runtime or torch; export them to ONNX."""

import os

# ONNX Runtime reports usage to its maker unless this variable is set before its import. Users of a local system have
# not agreed to that.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
