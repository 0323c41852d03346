"""Inference of trained encoders and readers by ONNX Runtime on a CPU, or by torch."""

import os

# Unless this is set before its import, ONNX Runtime reports usage to its maker, to which users of a local system have
# not agreed.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
