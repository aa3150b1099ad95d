"""Parts of the page of one job: what a change means, what drifts, what has come since the last look. Pure."""
