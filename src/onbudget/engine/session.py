"""An ONNX Runtime session behind the `Runner` protocol, with the execution provider that was asked for or none at all.

Rules of this file. One session serves all lanes: `run` is stateless and releases the GIL. With one intra-op thread the
calling lane does the work itself, so that lanes are the only threads. `disable_fallback` is called at once: otherwise
`run` silently recreates the session on other providers after a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from onbudget.core.errors import BundleError, ProviderError, UsageError
from onbudget.core.metadata import Metadata
from onbudget.engine.bundle import check_file, file_sha256, metadata_of
from onbudget.engine.noise import Noise
from onbudget.engine.told import told

Array = npt.NDArray[Any]

# ONNX Runtime's type names -> numpy's. Strings are numpy objects.
DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
    "tensor(string)": "object",
}
RUNTIME: str = ort.__version__
SHORT = {"cpu": "CPUExecutionProvider"}


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output: `dtype` is numpy's name ("" for sequences and maps); None in `shape` is any size."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How to open a session: intra-op `threads`, `providers` in order (the first must be active), and the optimiser."""

    threads: int = 1
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    spin: bool = False  # intra-op workers spin between runs; only for a machine that serves nothing else
    optimise: bool = True


class Stop:
    """A run's abort switch: any thread may call `set` while a run is on; the run then raises."""

    def __init__(self) -> None:
        self.options = ort.RunOptions()

    def set(self) -> None:
        """End the run at its next node."""
        self.options.terminate = True


class Runner(Protocol):
    """What the lanes, the checks and the timings ask of a model."""

    @property
    def inputs(self) -> tuple[Port, ...]: ...
    @property
    def outputs(self) -> tuple[Port, ...]: ...

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None, stop: Stop | None = None
    ) -> list[Any]:
        """One run: arrays by input name → arrays in the order of `outputs` (all of them when None)."""
        ...


class OrtRunner:
    """A loaded model.

    `metadata` is the bundle's passport, None for a plain .onnx; `sha256` is that of the file's bytes (of the main file
    where external data lies beside it); `providers` are the active ones, in order.
    """

    def __init__(self, session: ort.InferenceSession, sha256: str) -> None:
        self.session = session  # ONNX Runtime's own; its `run` checks what `run` here does not
        self.sha256 = sha256
        self.inputs = tuple(_port(node) for node in session.get_inputs())
        self.outputs = tuple(_port(node) for node in session.get_outputs())
        self.providers: tuple[str, ...] = tuple(session.get_providers())
        self.metadata: Metadata | None = metadata_of(session.get_modelmeta().custom_metadata_map)
        self._all = [port.name for port in self.outputs]
        # The inner session: the wrapper's `run` costs 5 µs of checks that the ports above have made once.
        self._run = session._sess.run

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None, stop: Stop | None = None
    ) -> list[Any]:
        """One run; ONNX Runtime's own exceptions come through, since only the caller knows whose fault they are."""
        result: list[Any] = self._run(self._all if outputs is None else outputs, feeds, stop.options if stop else None)
        return result


def _port(node: Any) -> Port:
    # Unnamed and symbolic axes are strings or None; old exporters write -1.
    shape = tuple(d if isinstance(d, int) and d >= 0 else None for d in (node.shape or ()))
    return Port(node.name, DTYPES.get(node.type, ""), shape)


def provider_names(text: str) -> tuple[str, ...]:
    """`cpu` or `OpenVINOExecutionProvider,cpu` → ONNX Runtime's names; UsageError for an empty list."""
    names = tuple(SHORT.get(name.strip().lower(), name.strip()) for name in text.split(",") if name.strip())
    if not names:
        raise UsageError(f"{text!r} names no execution provider; there are {', '.join(ort.get_available_providers())}")
    return names


def load_runner(model: Path | bytes, options: SessionOptions | None = None) -> OrtRunner:
    """Open a model file, or its bytes, on exactly the providers asked for.

    Raises BundleError for what is not a loadable model, ProviderError when the first provider asked for is not here or
    did not become the active one.
    """
    asked = options or SessionOptions()
    here = ort.get_available_providers()
    missing = [name for name in asked.providers if name not in here]
    if missing:
        raise ProviderError(f"execution provider {missing[0]} is not in this onnxruntime; there are: {', '.join(here)}")
    if isinstance(model, Path):
        check_file(model)
    name = str(model) if isinstance(model, Path) else "the model"
    try:
        session = ort.InferenceSession(
            str(model) if isinstance(model, Path) else model,
            _session_options(asked),
            providers=list(asked.providers),
            enable_fallback=0,  # else a failed creation is tried again on other providers, with a print to stdout
        )
    except Exception as error:  # ONNX Runtime raises a dozen unrelated classes, all meaning: it does not load
        raise BundleError(f"{name}: onnxruntime {ort.__version__} cannot load it: {told(error)}") from error
    session.disable_fallback()
    active = session.get_providers()
    if active[0] != asked.providers[0]:
        raise ProviderError(
            f"{name}: asked for {asked.providers[0]} but {active[0]} is active; available: {', '.join(here)}"
        )
    try:
        return OrtRunner(session, file_sha256(model))
    except UnicodeDecodeError as error:
        raise BundleError(f"{name} is damaged: a name in it is not text") from error


def _session_options(asked: SessionOptions) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = asked.threads
    options.inter_op_num_threads = 1
    # Fatal only: its warnings are for the makers of graphs (`onbudget check` tells them), its errors come as exceptions
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if asked.spin else "0")
    if not asked.optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def example(port: Port, rows: int, seed: int = 0) -> Array:
    """A plausible random array for an input: `rows` on the first open axis, 1 on every other open axis."""
    rng = Noise(seed)
    shape = [rows if i == 0 and d is None else (1 if d is None else d) for i, d in enumerate(port.shape)]
    if port.dtype == "object":
        return np.full(shape, "", dtype=object)
    kind = np.dtype(port.dtype)
    if kind.kind == "f":
        return rng.standard_normal(shape).astype(kind)
    if kind == np.uint8:
        return rng.integers(0, 256, shape).astype(np.uint8)
    return rng.integers(0, 2, shape).astype(kind)
