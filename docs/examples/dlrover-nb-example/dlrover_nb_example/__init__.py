"""An example of a package that extends dlrover-nb; see docs/how-to/extend.md."""
