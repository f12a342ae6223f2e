# mpswatch as an image. Three targets on any Debian or Ubuntu with Python 3.11 or newer:
#   daemon  the watcher, without torch: its measuring client's interpreter comes from elsewhere, or it only watches
#   full    the watcher and torch: measures by itself
#   demo    the watcher and numpy: runs the rehearsal stack, no GPU needed (deploy/compose)
#   docker build --target full -t mpswatch:full .
# Arguments: BASE, MPSWATCH_UID and MPSWATCH_GID (those of the stack's MPS server), EXTRAS, TORCH, WHEELS (a folder of
# wheels in the build context that go before the index), VERSION, REVISION; PIP_INDEX_URL, PIP_NO_INDEX and PIP_CERT
# as pip reads them. How to run it: deploy/container/README.md.

ARG BASE=debian:bookworm-slim

# hadolint ignore=DL3006
FROM ${BASE} AS base
# The base image is the argument that pins the distribution, and its packages with it.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/*

FROM base AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
# pip stands beside what it installs, so that the images are without it.
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/mpswatch
ENV PATH=/opt/pip/bin:${PATH}
WORKDIR /src
ARG WHEELS=deploy/container/wheels
COPY ${WHEELS}/ /wheels/
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_CERT
COPY LICENSE README.md constraints.txt pyproject.toml ./
COPY mpswatch mpswatch
# In brackets, as pip writes them; empty for none.
ARG EXTRAS=[remote]
RUN pip --python /opt/mpswatch/bin/python install --no-cache-dir --find-links /wheels -c constraints.txt ".${EXTRAS}"

# An argument ends with its stage: pip's are named once more in each.
FROM build AS build-demo
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_CERT
RUN pip --python /opt/mpswatch/bin/python install --no-cache-dir --find-links /wheels -c constraints.txt "numpy>=1.26"

FROM build AS build-full
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_CERT
ARG TORCH="torch>=2.3"
# Which torch is the argument's affair.
# hadolint ignore=DL3013
RUN pip --python /opt/mpswatch/bin/python install --no-cache-dir --find-links /wheels "${TORCH}" "numpy>=1.26"

FROM base AS runtime
# Sweeps need the uid of the stack's MPS server: build with it, or give it when the container is run.
ARG MPSWATCH_UID=10677
ARG MPSWATCH_GID=10677
RUN groupadd --gid "${MPSWATCH_GID}" mpswatch \
    && useradd --uid "${MPSWATCH_UID}" --gid mpswatch --no-log-init --home-dir /var/lib/mpswatch --create-home \
        --shell /usr/sbin/nologin mpswatch
COPY mpswatch/container_init.py /opt/mpswatch-init.py
# The control program and libcuda are in the container toolkit's `compute`, NVML and nvidia-smi in `utility`.
ENV PATH=/opt/mpswatch/bin:${PATH} \
    STATE_DIRECTORY=/var/lib/mpswatch \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER ${MPSWATCH_UID}:${MPSWATCH_GID}
EXPOSE 10677
STOPSIGNAL SIGTERM
# Outlives the daemon until no measuring client is left: its end would kill one with work in flight.
ENTRYPOINT ["/usr/bin/python3", "-I", "-S", "/opt/mpswatch-init.py", "mpswatch"]
CMD ["run", "--web.listen-address=:10677"]
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["mpswatch", "healthcheck"]
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="mpswatch" \
      org.opencontainers.image.description="Watches a GPU shared through NVIDIA MPS: throughput by cap, managed clients, foreign tenants" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

FROM runtime AS demo
COPY --from=build-demo /opt/mpswatch /opt/mpswatch
CMD ["demo", "--web.listen-address=:10677"]

FROM runtime AS full
COPY --from=build-full /opt/mpswatch /opt/mpswatch

# The last target is what a build without --target gives.
FROM runtime AS daemon
COPY --from=build /opt/mpswatch /opt/mpswatch
