"""What touches the machine: model files, pictures, ONNX Runtime sessions, CPU facts."""
