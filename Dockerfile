# A machine with what the README asks for, and Penstock set up in it. Used by docker-compose.yml.
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE}

# Python comes with the default base; a plain Debian as BASE_IMAGE gets it here.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git make openjdk-17-jre-headless \
 && (command -v python3.11 || apt-get install -y --no-install-recommends python3.11 python3.11-venv) \
 && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home penstock && install -d -o penstock -g penstock -m 700 /opt/penstock
WORKDIR /opt/penstock
USER penstock
COPY --chown=penstock:penstock . .
# uv keeps no copy of what it downloads: the layer holds each package once.
RUN UV_NO_CACHE=1 make setup
CMD ["make", "demo"]
