"""The pages of the ways to sign in, and which way the settings ask for."""
