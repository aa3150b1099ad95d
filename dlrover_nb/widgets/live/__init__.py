"""The live view: what is drawn where, how changes reach a page, and its buttons and sliders."""
