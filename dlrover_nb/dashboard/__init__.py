"""The team's dashboard: one Tornado process that shows all jobs of its clusters and takes commands on them.

It has no logic of its own: pages show the same views as a notebook, and every command goes through the same
`core.commands.service.CommandService` as those of magics, Python and the command line. It never runs in a
process that controls jobs: their masters run in the cluster, and a crash of this one delays no training.

Pages are HTML that the server writes, each with its whole state in its address; so they work on a phone,
from a link, and again after a restart. What changes each second comes as server-sent events, which browsers
ask for again by themselves. Only the live charts of one job are Panel's, the same as in a notebook.
Rejected: every page a Panel app. Each open page then holds a session with models on both sides, a table of
1,000 jobs is as many cells to keep in step, and a page that a chat links to needs a websocket before it
shows anything.
"""
