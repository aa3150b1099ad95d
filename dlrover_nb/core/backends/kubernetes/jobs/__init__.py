"""Jobs of a namespace as clients see them: submitted, found, called, ended, deleted."""
