# A server in a container: docker build -t onbudget . (docs/howto/container.md says how it is run).
# Both stages have the same base, since a virtual environment points to the Python that made it.
FROM python:3.11.14-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=/src/constraints.txt
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE NOTICE ./
COPY src src
RUN python -m pip wheel --no-deps --wheel-dir /wheels . \
 && python -m venv --without-pip /venv \
 && python -m pip --python /venv/bin/python install /wheels/*.whl

FROM python:3.11.14-slim-bookworm
RUN groupadd --gid 10001 onbudget \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin onbudget
COPY --from=build /venv /venv
# Nothing is written: with a volume for what models cost, set XDG_CACHE_HOME to it.
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 ONBUDGET_HOST=0.0.0.0
WORKDIR /models
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-m", "onbudget.cli.healthy"]
ENTRYPOINT ["onbudget"]
CMD ["serve"]
