"""onbudget: serve ONNX models on the CPUs you have and hold a declared p95 latency budget."""

__version__ = "0.1.0"
