"""Views of clusters and of several jobs."""
