"""The life of models that are mounted in somebody's application, which Starlette itself starts and stops for nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from onbudget.serve.service import Service


@contextlib.asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    """Start every model that `create_app` put into `app`, at any depth; at the end answer what was accepted, and stop.

    Give it as `FastAPI(lifespan=onbudget.lifespan)`, or enter it in a lifespan of your own. Raises why a model can't be
    served (BundleError, ProviderError), after it stopped the others.
    """
    try:
        await asyncio.gather(*[service.start() for service in _services(app)])
        yield
    finally:
        await asyncio.gather(*[service.stop() for service in _services(app)])


def _services(app: Any) -> Iterator[Service]:
    """The services of an application and of what is mounted in it, behind middlewares too; each once."""
    seen: set[int] = set()
    left = [app]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        service = getattr(getattr(one, "state", None), "service", None)
        if isinstance(service, Service):
            yield service
        else:
            # Mounts and hosts have `app`, and so have middlewares around it; routers and applications have `routes`.
            left += [getattr(one, "app", None), *(getattr(one, "routes", None) or ())]
