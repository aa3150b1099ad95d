"""The sans-IO controller of a job: events in, orders out."""

from dlrover_nb.core.controller.auto_policy import AutoSettings
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.controller.decision_view import DecisionView
from dlrover_nb.core.controller.plan_queries import PlanQueries
from dlrover_nb.core.controller.replay import replay
from dlrover_nb.core.controller.settings import ControllerSettings

__all__ = ["AutoSettings", "Controller", "ControllerSettings", "DecisionView", "PlanQueries", "replay"]
