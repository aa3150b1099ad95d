"""What plans would do: their speed here and now, their cost and end, and what changing to them takes."""
