"""Modules of users and of other libraries as they are: their embedding tables become rows of the PS."""
