"""The models of one server, by name; one of them is the default, which `/predict` asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onbudget.core.errors import UnknownModel
from onbudget.serve.service import Service


class Fleet:
    """One or more services; the first is the default."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = {service.name: service for service in services}
        self.default = services[0]

    def __iter__(self) -> Iterator[Service]:
        return iter(self._services.values())

    def find(self, name: str, version: str = "") -> Service:
        """The service of a model; UnknownModel where there is none, or where it serves another version."""
        service = self._services.get(name)
        if service is None:
            names = ", ".join(self._services)
            raise UnknownModel(f"no model {_shown(name)} here; this server has {names}")
        if version and version != service.version:
            raise UnknownModel(f"{name} has no version {_shown(version)} here; version {service.version} is served")
        return service


def _shown(name: str) -> str:
    text = repr(name)
    return text if len(text) <= 60 else text[:59] + "…"
