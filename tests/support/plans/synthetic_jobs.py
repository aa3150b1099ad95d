"""Jobs whose requirements follow known formulas, with a deviation of each job and noise of each row."""

import numpy as np

from dlrover_nb.core.deadline.model_features import ModelFeatures
from dlrover_nb.core.deadline.training_rows import Measurements, Setting, TrainingRow


def jobs(n_job, *, seed, n_row=6, prefix="job", sd_job=0.1, sd_row=0.03):
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n_job):
        batch, params = int(rng.integers(32, 1024)), int(10 ** rng.uniform(6, 8))
        features = ModelFeatures(batch, params, 2 * batch * params)
        own = rng.normal(0, sd_job)
        for _ in range(n_row):
            share = float(rng.uniform(0.3, 1.5))
            noise = np.exp(own + rng.normal(0, sd_row))
            measured = Measurements(
                worker_cpu=0.05 * batch**0.6 * noise,
                worker_memory_mib=(500 + 16 * params / 2**20) * noise,
                iter_s=1e-9 * batch * params * (0.4 / min(share, 1.0) + 0.6) * noise,
            )
            rows.append(TrainingRow(f"{prefix}-{number}", features, Setting(cpu_share=share), measured))
    return rows
