"""Values in the types of training, whichever file they come from, and agreement among files."""
