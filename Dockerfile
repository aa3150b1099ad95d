# The image of a job's pods: master, parameter servers and workers. No notebook parts, no compiler, no root.
#
#   docker build -t dlrover-nb:0.2.0 .
#
# That of the team's dashboard (deploy/dashboard) is made by the same file, and holds no torch:
#
#   docker build --build-arg EXTRAS=kubernetes,dashboard,postgresql -t dlrover-nb-dashboard:0.2.0 .
#
# PIP_EXTRA_INDEX_URL may name an index with torch for CPUs only: without one, torch may bring a CUDA build of
# several gigabytes. EXTRAS may add postgresql (a team's history), PACKAGES what a job's own code and URLs need
# (s3fs, gcsfs, a package of one's own).
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
ARG EXTRAS=torch,kubernetes
ARG PACKAGES=
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /src
COPY constraints.txt pyproject.toml setup.py README.md LICENSE ./
COPY dlrover_nb ./dlrover_nb
RUN python -m venv /opt/dlrover-nb \
 && /opt/dlrover-nb/bin/python -m pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]" ${PACKAGES} \
 && cd / \
 && DLROVER_NB_KERNEL=c /opt/dlrover-nb/bin/python -c "from dlrover_nb.core.runtime.kernels import kernel; kernel()" \
 && /opt/dlrover-nb/bin/python -m pip uninstall --yes pip \
 && cd /opt/dlrover-nb/lib/python3*/site-packages \
 && find . -type d -name tests -prune -exec rm -rf {} + \
 && rm -rf torch/include torch/test torch/bin/test_* torch/bin/protoc*

FROM python:${PYTHON}
RUN groupadd --gid 65532 dlrover-nb \
 && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin dlrover-nb
COPY --from=build /opt/dlrover-nb /opt/dlrover-nb
ENV PATH=/opt/dlrover-nb/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /tmp
# By number: Kubernetes can then see that it is not root.
USER 65532:65532
CMD ["dlrover-nb", "--help"]
