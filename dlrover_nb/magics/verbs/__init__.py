"""All that can be done, by its old names, a module per topic; `spelling` has the words that users type.

The handlers import what they need when they run: the parser and the help, which load with the extension, need
none of it.
"""

from dlrover_nb.magics.verbs import audit, decisions, lab, lifecycle, records, rehearse, results, start, team

VERBS = {
    verb.name: verb
    for topic in (start, decisions, records, audit, lifecycle, results, team, lab, rehearse)
    for verb in topic.VERBS
}
