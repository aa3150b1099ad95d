"""Jobs that a test begins: of real processes, or among played nodes."""

from support.driver.begun_jobs import features, play, start

__all__ = ["features", "play", "start"]
