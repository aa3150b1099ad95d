"""What in a job's numbers is probably a slip: asked at its start, and not refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.spec_choices import Device

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec

FEW_STEPS = 20  # of all workers in the whole job: too few for an optimizer to learn by
WORKER_START_MIB = 230  # measured with torch 2.13, before it has any data


def cautions(spec: JobSpec, n_train: int | None) -> tuple[str, ...]:
    """Return questions to who submits a job, each one sentence with what to do.

    Parameters
    ----------
    n_train
        Rows of one epoch; None: not known, or a stream.
    """
    return (*_batch(spec, n_train), *_memory(spec), *_gpus(spec)) if spec.foreign is None else ()


def _batch(spec: JobSpec, n_train: int | None) -> tuple[str, ...]:
    if not n_train or n_train * spec.n_epoch < FEW_STEPS:
        return ()
    size = spec.batch_size if spec.global_batch is None else spec.global_batch
    if size > n_train:
        what = f"A batch of {size:,} is more than all {n_train:,} rows, so each epoch is one step"
    elif n_train * spec.n_epoch < FEW_STEPS * size:
        n_step = -(-n_train // size) * spec.n_epoch
        what = f"A batch of {size:,} out of {n_train:,} rows makes {n_step} steps in the whole job"
    else:
        return ()
    largest = min(n_train, n_train * spec.n_epoch // FEW_STEPS)
    key = "--batch-size" if spec.global_batch is None else "--global-batch"
    return (f"{what}. Is that intended? {key} of at most {largest:,} makes at least {FEW_STEPS} steps.",)


def _gpus(spec: JobSpec) -> tuple[str, ...]:
    n_gpu = spec.plan.worker.gpu
    if n_gpu and spec.device is Device.CPU:
        what = f"Each worker has {n_gpu} GPU{'s' * (n_gpu != 1)} and computes on its cores"
        return (f"{what}. Is that intended? --device auto computes on one.",)
    if n_gpu > 1:
        return (f"A worker computes on one GPU and has {n_gpu}. Is that intended? --worker-gpu 1 is enough.",)
    return ()


def _memory(spec: JobSpec) -> tuple[str, ...]:
    mib = spec.plan.worker.memory_mib
    if mib >= WORKER_START_MIB:
        return ()
    takes = f"a worker takes before it has any data (some {WORKER_START_MIB} MiB)"
    return (f"{mib} MiB are less than {takes}. Is that intended? --worker-memory gives it more.",)
