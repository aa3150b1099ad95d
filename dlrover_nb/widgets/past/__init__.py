"""Views of what was: the history, earlier moments, comparisons, reports."""
