"""The live renderer of charts: keeps Bokeh figures equal to a `Drawing`, and sends only what changed."""
