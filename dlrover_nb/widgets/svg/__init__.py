"""Drawings without a browser: marks, axes and labels as SVG."""
