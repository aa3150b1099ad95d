"""The progress of a job, as Kubeflow Trainer takes it."""
