"""Inference of trained encoders and readers with ONNX Runtime on a CPU, or with torch."""

import os

# ONNX Runtime reports usage to its maker unless this is set before its import. Users of a local system have not agreed
# to such reports.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
