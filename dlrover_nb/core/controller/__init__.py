"""The sans-IO heart of a job: facts in, orders out."""

from dlrover_nb.core.controller.autopilot import AutoSettings
from dlrover_nb.core.controller.controller import Controller, replay
from dlrover_nb.core.controller.counsel import Counsel
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.controller.view import ControllerView

__all__ = ["AutoSettings", "Controller", "ControllerSettings", "ControllerView", "Counsel", "replay"]
