"""Views of jobs: static text, HTML and SVG; live ones with Panel; one file per chart."""
