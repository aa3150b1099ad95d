"""A server for agents with a simulated job, over standard input and output: the program that the tests start."""

import sys

from support.dashboard.team_clusters import simulated_cluster, submitted

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.commands.second_person import NO_RULES
from dlrover_nb.core.structs.decisions.people import local_person
from dlrover_nb.dashboard.agent_tools import AgentTools
from dlrover_nb.dashboard.mcp_server import server_of

if __name__ == "__main__":
    cluster = simulated_cluster()
    submitted(cluster, "ads-ctr")
    tools = AgentTools(
        lambda: cluster.core, local_person("ada"), SystemClock().now_s, url=sys.argv[1], rules=NO_RULES
    )
    server_of(tools).run()
    tools.close()
    cluster.close()
    cluster.core.shutdown(force=True)
